"""The port to an object store. All calls block, and may take seconds: they belong into threads.

Every implementation promises:

- **A put is whole or has no effect.** Readers see all of an object or nothing of it.
- **What was put can be read at once**, by everybody. Listing may be late.
- **`put` with a condition is atomic**: of two writers with the same condition one wins, the other gets
  `Conflict`. A writer whose answer was lost may get `Conflict` although it has won: it reads and compares.

Errors are `Conflict`, `Missing`, and `ObjectStoreError` for everything else: all but the first two may be
over when one tries again. (`ManifestError` is raised by those who read manifests, not by a store.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from forebay.errors import ForebayError

ABSENT = ""
"""The condition that no object of that name exists."""


class ObjectStoreError(ForebayError):
    """The object store failed or could not be reached. The message says what was tried, and why it failed."""


class Missing(ObjectStoreError):
    """There is no object of that name."""


class ManifestError(ObjectStoreError):
    """Something is wrong with the manifest of one partition. The store works."""


class ManifestLost(ManifestError):
    """A partition has segments, and its manifest is missing, cannot be read, or is an older one."""


class ManifestChanged(ManifestError):
    """Somebody else has changed the manifest: it is to be read again."""


class Conflict(ObjectStoreError):
    """Somebody else has changed the object."""


class Stored(NamedTuple):
    """An object's bytes, and the tag to change it by."""

    data: bytes
    tag: str


class Listed(NamedTuple):
    key: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    @property
    def url(self) -> str:
        """Where it is, without credentials: for messages."""

    def get(self, key: str) -> Stored:
        """A whole, small object. Raises Missing."""

    def get_range(self, key: str, position: int, length: int) -> bytes:
        """Exactly these bytes. Raises Missing, and ObjectStoreError if the object is too short."""

    def put(self, key: str, data: bytes, *, replaces: str | None = None) -> str:
        """Write a small object; returns its tag. `replaces`: only over the version with this tag, or, if it
        is ABSENT, only if there is none; else Conflict is raised."""

    def upload(self, key: str, parts: Iterable[bytes]) -> None:
        """Write a large object from its parts, of which a few are in memory at a time."""

    def delete(self, key: str) -> None:
        """Delete an object. One that does not exist is no error."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """The objects whose keys begin so."""
