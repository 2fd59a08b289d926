"""Which store a process uses, and its position: how to distinguish it from any other.

Every answer of etcd has a header with the id of its cluster, its revision and its raft term. A process takes
the first cluster that answers for its own, for as long as it lives. An answer of another cluster is not
trusted: a wrong address, a wrong volume, a new etcd.

Revisions and terms of a store never go down. A linearizable answer has the newest of both, so it must not be
below anything that was seen before the request; the revision that a write makes must be above it. Otherwise
the store has lost data that it had returned: it was restored from a backup, or lost its volume. Other answers
show the state of a single server, which may lag: only their cluster is compared, and their position is
remembered, since a server returns only committed data.

A backup that others write to is soon at a higher revision than the store was. Only its contents reveal it
(`store_history.py`), and they are checked later. So after the watch has broken off, no positions are
remembered until the contents were checked. Otherwise the real store would seem to have gone back when it
returns.

All connections of a process to its store share one object, also those of the thread that keeps the lease.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

from forebay.coordination.store import MismatchReason, StoreMismatch

WHAT_TO_DO = {
    MismatchReason.ANOTHER_STORE: "This broker serves nothing and deletes nothing until its own store "
    "answers again: correct the address, or put the right etcd back. It then goes on by itself",
    MismatchReason.WENT_BACK: "This broker serves nothing and deletes nothing. If the newer state can be put "
    "back, do that, and it goes on by itself. If a backup was restored on purpose, stop all brokers and "
    "start them again (see docs/backup.md)",
}


class Position(NamedTuple):
    """The position of a store."""

    revision: int
    term: int


class Header(NamedTuple):
    """The identity and position of the store that answers."""

    store: str
    """The id of the cluster that answers; empty if it is not given."""
    revision: int
    term: int


class KnownStore:
    def __init__(self) -> None:
        self.store = ""
        """The id of the store; empty before the first answer."""
        self.revision = 0
        self.term = 0
        self.refused: StoreMismatch | None = None
        """Set while the answering store is not trusted. A lease of the store does not count then."""
        self.contents_refused = False
        """True while the answering store has another history. No lease is kept alive there: it belongs to a
        backup, and other brokers would rely on this one."""
        self._is_doubted = False
        self._lock = Lock()

    def position(self) -> Position:
        """The newest position seen so far: an answer to a later request must not be older."""
        with self._lock:
            return Position(self.revision, self.term)

    def doubt(self) -> None:
        """Note that the answering store may have another history: its position is not remembered."""
        with self._lock:
            self._is_doubted = True

    def disprove(self, revision: int) -> None:
        """Note that the answering store has another history than the store had at this revision. Its position
        may have been remembered before anybody doubted it, so no later one is known."""
        with self._lock:
            self._is_doubted = True
            self.revision, self.term = min(self.revision, revision), 0

    def believe(self, revision: int) -> None:
        """Note that the answering store has the right contents, and is at this revision."""
        with self._lock:
            self._is_doubted = False
            self.revision = max(self.revision, revision)

    def mismatch(
        self, header: Header, asked_at: Position | None = None, *, wrote: bool = False
    ) -> StoreMismatch | None:
        """Why an answer must not be trusted; None if it is, and then it is remembered unless in doubt.

        `asked_at` is given for linearizable answers: the position before the request was sent. One that
        `wrote` has made a revision, which must be later.
        """
        if self.store and header.store and header.store != self.store:
            return mismatch(
                MismatchReason.ANOTHER_STORE,
                f"the etcd with the cluster id {header.store} answers, and this broker belongs to "
                f"the one with {self.store}",
            )
        if asked_at is not None and (
            header.revision < asked_at.revision + wrote or header.term < asked_at.term
        ):
            return mismatch(
                MismatchReason.WENT_BACK,
                f"the store answers with revision {header.revision} in term {header.term}, and was at "
                f"revision {asked_at.revision} in term {asked_at.term} before",
            )
        with self._lock:
            self.store = self.store or header.store
            if not self._is_doubted:
                self.revision = max(self.revision, header.revision)
                self.term = max(self.term, header.term)
        return None


def mismatch(reason: MismatchReason, found: str) -> StoreMismatch:
    return StoreMismatch(reason, f"{found}. {WHAT_TO_DO[reason]}")
