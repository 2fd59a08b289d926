"""The port to the coordination store: a small key-value store with revisions, like etcd.

Every successful transaction makes one new revision. A key carries the revision that created it and the one
that last changed it, and a transaction may compare both. The safety of the whole system is built on that. A
watch repeats history from a revision on without a gap, or says that the history is gone (`Compacted`); then
the reader reads a new `range` and continues from its revision.

Keys put under a lease vanish, with events like any deletion, when the lease ends.

An implementation may fail at any call with StoreError. After a failed `txn` the outcome is unknown: never
send the same compare-and-set again blindly, read first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Protocol

from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass

TXN_OPERATIONS_MAX = 128
"""The limit of compares, and of puts plus deletes: etcd's default limit, which counts the two separately."""


class MismatchReason(Enum):
    ANOTHER_STORE = "another_store"
    WENT_BACK = "went_back"


class StoreError(KafkaError):
    """The store did not answer, or not in time; a client may retry."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class StoreAway(StoreError):
    """Nobody answers. That may pass without any correction."""


class Compacted(StoreError):
    """The requested events of a watch are no longer kept."""


class StoreClosed(StoreError):
    """The store was closed by this process."""


class StoreMismatch(StoreError):
    """The answering store is not the one that this process has used so far, or is an older state of it.

    Nothing that it says is trusted. See `store_identity.py`.
    """

    def __init__(self, reason: MismatchReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class LeaseLost(StoreError):
    """The lease has ended, and the keys under it are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


class Target(Enum):
    CREATE_REVISION = "create"
    MOD_REVISION = "mod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Holds when the key's revision is this one; revision 0 means that the key does not exist."""

    key: str
    target: Target
    revision: int

    @staticmethod
    def absent(key: str) -> Compare:
        return Compare(key=key, target=Target.CREATE_REVISION, revision=0)

    @staticmethod
    def created(key: str, revision: int) -> Compare:
        return Compare(key=key, target=Target.CREATE_REVISION, revision=revision)

    @staticmethod
    def unchanged(key: str, revision: int) -> Compare:
        return Compare(key=key, target=Target.MOD_REVISION, revision=revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    key: str
    prefix: bool = False
    """True if every key with this prefix is meant; this counts as one operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnResult:
    ok: bool
    revision: int
    """The revision of this transaction, or the current one if it changed nothing."""


class EventKind(Enum):
    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    kind: EventKind
    kv: KeyValue
    """For a deletion: the key with an empty value, and the deletion's revision as mod revision."""


class Lease(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def lost(self) -> asyncio.Event:
        """Set once the lease has ended, for whatever reason."""

    def valid(self) -> bool:
        """True if the lease holds at this moment, with a margin."""

    async def revoke(self) -> None:
        """End the lease now; its keys vanish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """Distinguishes a store from others, and from its own past."""

    cluster: str
    """The id of the store itself. A restored store may have the same one."""
    index: int
    """Rises with every change of the store's own log, and restarts when a backup is restored."""
    revision: int


class Trust(Protocol):
    """Is told if the contents of the answering store are the right ones: see `store_identity.py`."""

    contents_refused: bool

    def doubt(self) -> None: ...
    def disprove(self, revision: int) -> None: ...
    def believe(self, revision: int) -> None: ...


class Store(Protocol):
    @property
    def known(self) -> Trust:
        """For the reader that follows the contents of the store."""

    async def identity(self) -> StoreIdentity:
        """The identity of the store now: at least as late as every answer that any client has had."""

    async def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        """All keys with a prefix, sorted, and the revision at which they were read."""

    async def get(self, key: str) -> KeyValue | None:
        """The newest committed value."""

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        """Apply all puts and deletes as one revision if every compare holds, else nothing."""

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        """All events of `from_revision` and later, in order, those of one revision never apart.

        The number is the revision up to which the reader has seen everything. An empty list means that the
        watch was interrupted and continues after that revision. If the store was replaced meanwhile, the next
        events belong to another history, so the reader compares its knowledge with the keys.
        """

    async def lease(self, ttl_s: float) -> Lease:
        """A lease that is kept alive."""

    async def expiring(self, ttl_s: float) -> int:
        """The id of a lease that nobody keeps alive: keys put under it vanish after this time."""

    async def revoke(self, lease_id: int) -> None:
        """End any lease; its keys vanish, and its holder learns it with its next keep-alive at the latest. No
        error if it has already ended."""

    async def close(self) -> None: ...


def check_txn(compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete]) -> None:
    """Checks that every implementation makes first; a violation is a bug."""
    operations = max(len(compares), len(puts) + len(deletes))
    if operations > TXN_OPERATIONS_MAX:
        raise ValueError(f"{operations} operations in one transaction, {TXN_OPERATIONS_MAX} are allowed")
    written = [put.key for put in puts]
    if len(set(written)) != len(written):
        raise ValueError("a transaction puts one key twice")
    for delete in deletes:
        if any(key == delete.key or (delete.prefix and key.startswith(delete.key)) for key in written):
            raise ValueError(f"a transaction both puts and deletes {delete.key}")
