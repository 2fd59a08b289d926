"""The index of what waits in a partition: what it is told of the log, and what it answers.

It is derived from the delay notes in the log, and says what waits by the log below some offset, its position.
It may be thrown away at any time: the log has everything, and is read again from its start.

**Order.** A note of a transaction counts at the marker that commits it, behind notes that lie between them.
So it may end a message that was noted behind it. If the log were cut between them, an index made anew would
find the message and nothing that ends it. The index keeps such messages as *ended out of order*, and the note
that ended them is needed until the leader has said the same at the end of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from forebay.wire.state.delay_notes import Change, Waiting


class Noted(NamedTuple):
    """A note that counts from here on."""

    home: int
    """Its offset."""
    changes: Sequence[Change]
    bound: bool = True
    """Whether it belongs to a batch. One that does not, and ends messages, has cancelled them."""


class Undecided(NamedTuple):
    """A note that counts if its transaction is committed."""

    home: int
    next_offset: int
    producer_id: int
    note: bytes
    """The value of its record."""


class Ended(NamedTuple):
    """A transaction was committed, or aborted."""

    producer_id: int
    commit: bool


Entry: TypeAlias = Noted | Undecided | Ended


class IndexState(NamedTuple):
    """What is known of an index."""

    position: int
    """The log below this offset is in it."""
    leader_epoch: int
    """Of the last batch below the position; -1 if there is none."""
    pending: int
    """How many messages wait."""
    next_due_ms: int | None
    oldest_home: int | None
    """The offset of the first note that something in the index needs; None when there is none."""
    out_of_order: int = 0
    """How many messages were ended out of order, and the log does not say so at its end yet."""


class DelayIndex(Protocol):
    def load(self, topic_id: bytes) -> IndexState:
        """What is known; an index of another topic is emptied first."""

    def clear(self) -> None:
        """Forget everything: the log will be read again."""

    def apply(self, entries: Iterable[Entry], position: int, leader_epoch: int) -> IndexState:
        """Take over what was read of the log up to this position."""

    def forget_below(self, start_offset: int) -> IndexState:
        """The log begins here now: what was noted below waits no more."""

    def due(self, now_ms: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        """The first of those that are due, in the order of (due, id): at least one, if any is."""

    def of_ids(self, ids: Sequence[int], *, bytes_max: int) -> list[Waiting]:
        """Those of these ids that wait, in the order of the ids; only the first, if they are large."""

    def waiting_under(self, keys: Sequence[bytes]) -> frozenset[bytes]:
        """Those of these schedule keys under which a message waits."""

    def after(self, due_ms: int, id_: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        """Those behind this place in the order of (due, id)."""

    def noted_below(self, offset: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        """Those whose notes lie below an offset, oldest note first."""

    def bytes_below(self, offset: int) -> int:
        """The size of the messages whose notes lie below an offset."""

    def ended_out_of_order(self, *, count_max: int) -> list[int]:
        """The ids of messages of which the log does not say at its end yet that they were ended."""

    def cancelled(self, ids: Sequence[int]) -> set[int]:
        """Those of these ids that were cancelled by request; of the last ones only."""

    def sync(self) -> None:
        """Have all that it knows survive a loss of power. Otherwise that may leave it as of any time before:
        right, but with messages that wait by it though the log behind its position says otherwise."""

    def close(self) -> None: ...


class DelayIndexes(Protocol):
    """The seam to the files of indexes."""

    def exists(self, directory: str) -> bool:
        """True if the partition in this directory has an index, or had one that was lost."""

    def keep(self, directory: str) -> None:
        """Remember that the partition has an index, whatever becomes of the index. Blocks."""

    def of(self, directory: str) -> DelayIndex:
        """The index of the partition in this directory, to be loaded."""
