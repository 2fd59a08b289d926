"""The options of a read about the part of topics that lies in an object store.

The place is the option `remoteUrl`, or what the brokers say (`remote/access.py`). Credentials are those of
Spark's side: the usual environment variables and files of the service, or options `remote.<name>`, which are
settings of obstore. Brokers never hand out theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache

from forebay.errors import ConfigError
from forebay.lazy import dataclass
from forebay.tiers.object_store import ObjectStore
from forebay.tiers.opening import check_url, open_store

AUTO, NEVER, ONLY = CHOICES = ("auto", "never", "only")
"""Read what is remote from the object store, if it can be reached; never; or read nothing else."""
PREFIX = "remote."
"""How the options begin that are settings of obstore."""
_STORES_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    read: str = AUTO
    url: str = ""
    """Empty: the brokers are asked."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of obstore: an endpoint, a region, credentials."""

    def check(self) -> None:
        problem = check_url(self.url) if self.url else None
        if problem is not None:
            raise ConfigError(f"remoteUrl={self.url}: {problem}")

    def open(self, url: str) -> ObjectStore:
        """The store, shared by the tasks of a process. Raises ObjectStoreError."""
        return _opened(url, tuple(sorted(self.settings.items())))


@lru_cache(_STORES_MAX)
def _opened(url: str, settings: tuple[tuple[str, str], ...]) -> ObjectStore:
    return open_store(url, dict(settings))
