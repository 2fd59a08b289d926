"""The object store that a URL or a directory names."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from forebay.tiers.object_store import ObjectStore, ObjectStoreError

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")


def check_url(url: str) -> str | None:
    """Why this cannot be the place of an object store; None if it can. Contacts nothing."""
    scheme = urlsplit(url).scheme
    if not url:
        return "it is empty"
    if "@" in urlsplit(url).netloc and scheme not in ("abfs", "abfss"):
        return "it must not contain credentials: use the environment variables or files of the service"
    if "://" in url and scheme not in ("file", *SCHEMES):
        return f"it must be a directory, or begin with one of {', '.join(f'{s}://' for s in SCHEMES)}"
    return None


def open_store(url: str, options: dict[str, Any] | None = None) -> ObjectStore:
    """A store for blocking use. Raises ObjectStoreError if the URL is wrong or obstore is not installed."""
    problem = check_url(url)
    if problem is not None:
        raise ObjectStoreError(f"{url!r} does not name an object store: {problem}")
    scheme = urlsplit(url).scheme
    if "://" not in url or scheme == "file":
        from forebay.tiers.local_directory import LocalDirectory

        return LocalDirectory(urlsplit(url).path if scheme == "file" else url)
    from forebay.tiers.obstore_store import ObstoreStore

    return ObstoreStore(url, options)
