"""S3, GCS, Azure and everything that speaks their protocols, by obstore (the extra `forebay[tier]`).

Credentials come from the usual environment variables and files of each service, never from a setting of
Forebay. Requests are retried by obstore for a few seconds, and then by whoever wants the object.

Large objects are uploaded in parts. A part that fails is sent again, for longer than other requests are, and
the others are not. If that does not help, the upload is aborted, so that the store keeps no parts of it.
obstore cannot go on with an upload of another process, nor find one that was killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from forebay.tiers.object_store import ABSENT, Conflict, Listed, Missing, ObjectStoreError, Stored

obstore: Any = None
exceptions: Any = None

_PART_BYTES = 8 << 20
_PARTS_AT_A_TIME = 2
_REQUEST_SECONDS = 30
_RETRY_SECONDS = 10
_PART_RETRIES_MAX = 12
_PART_RETRY_SECONDS = 60
"""After a shorter trouble of the store, no segment has to be sent from its start."""


def _import() -> None:
    """Load obstore: it takes a while, and only a process that uses such a store needs it."""
    global obstore, exceptions
    if obstore is None:
        try:
            exceptions = import_module("obstore.exceptions")
            obstore = import_module("obstore")
        except ImportError as error:
            raise ObjectStoreError(
                "object stores need the package obstore: install it with `pip install 'forebay[tier]'`"
            ) from error


class ObstoreStore:
    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        """`options`: settings of obstore for the service, such as an endpoint or credentials of Spark's."""
        _import()
        parts = urlsplit(url)
        self._url = f"{parts.scheme}://{parts.hostname or ''}{parts.path}".rstrip("/")
        self._place = url, dict(options or {})
        self._store: Any = self._open(retries_max=3, retry_seconds=_RETRY_SECONDS)
        self._uploads: Any = None
        """For large objects; made for the first."""

    def _open(self, *, retries_max: int, retry_seconds: int) -> Any:
        url, options = self._place
        try:
            return obstore.store.from_url(
                url,
                config=options,
                client_options={
                    "timeout": timedelta(seconds=_REQUEST_SECONDS),
                    "connect_timeout": timedelta(seconds=5),
                    "allow_http": True,
                },
                retry_config={
                    "max_retries": retries_max,
                    "retry_timeout": timedelta(seconds=retry_seconds),
                },
            )
        except Exception as error:
            raise ObjectStoreError(f"cannot use {self._url} as an object store: {error}") from error

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str) -> Stored:
        with _failures("read", key):
            found = obstore.get(self._store, key)
            return Stored(bytes(found.bytes()), _tag(found.meta))

    def get_range(self, key: str, position: int, length: int) -> bytes:
        with _failures("read", key):
            data = bytes(obstore.get_range(self._store, key, start=position, length=length))
        if len(data) != length:
            raise ObjectStoreError(f"{key} is too short: {position + length} bytes were expected")
        return data

    def put(self, key: str, data: bytes, *, replaces: str | None = None) -> str:
        mode: Any = "overwrite"
        if replaces is not None:
            mode = "create" if replaces == ABSENT else _version(replaces)
        with _failures("write", key):
            return _tag(obstore.put(self._store, key, data, mode=mode, use_multipart=False))

    def upload(self, key: str, parts: Iterable[bytes]) -> None:
        if self._uploads is None:
            self._uploads = self._open(retries_max=_PART_RETRIES_MAX, retry_seconds=_PART_RETRY_SECONDS)
        with _failures("write", key):
            obstore.put(
                self._uploads, key, iter(parts), chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_A_TIME
            )

    def delete(self, key: str) -> None:
        try:
            with _failures("delete", key):
                obstore.delete(self._store, key)
        except Missing:
            return

    def list(self, prefix: str) -> Iterator[Listed]:
        folder = prefix.rpartition("/")[0]
        with _failures("list", prefix):
            for some in obstore.list(self._store, folder or None):
                for found in some:
                    if found["path"].startswith(prefix):
                        modified_ms = int(found["last_modified"].timestamp() * 1000)
                        yield Listed(found["path"], found["size"], modified_ms)


def _tag(found: Any) -> str:
    """ETag and version: S3 and Azure compare the first, GCS the second."""
    return f"{found.get('e_tag') or ''} {found.get('version') or ''}"


def _version(tag: str) -> dict[str, str]:
    e_tag, _, version = tag.partition(" ")
    return {name: value for name, value in (("e_tag", e_tag), ("version", version)) if value}


@contextmanager
def _failures(verb: str, key: str) -> Iterator[None]:
    """Turns the exceptions of obstore into ours. Its messages have no credentials in them."""
    try:
        yield
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise Conflict(f"{key} was changed by somebody else") from error
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        raise Missing(f"there is no object {key}") from error
    except ObjectStoreError:
        raise
    except Exception as error:
        raise ObjectStoreError(f"cannot {verb} {key}: {error}") from error
