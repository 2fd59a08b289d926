"""The index of delayed messages in a partition: its updates from the log, and its queries.

It is derived from the delay notes in the log, and lists the waiting messages according to the log below some
offset, its position. It may be discarded at any time: the log has everything, and is read again from its
start.

**Order.** A note of a transaction counts at the marker that commits it, after the notes between them. So it
may end a message that was noted after it. If the log began between them, a new index would find the message
and nothing that ends it. The index keeps such messages as *ended out of order*, and the note that ended them
is needed until the leader has repeated it at the end of the log.
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
    """True if it belongs to a batch. A note without a batch that ends messages has cancelled them."""


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
    """The state of an index."""

    position: int
    """The index covers the log below this offset."""
    leader_epoch: int
    """The leader epoch of the last batch below the position; -1 if there is none."""
    pending: int
    """The number of waiting messages."""
    next_due_ms: int | None
    oldest_home: int | None
    """The offset of the first note that the index needs; None if there is none."""
    out_of_order: int = 0
    """The number of messages that were ended out of order, and the end of the log does not say so yet."""


class DelayIndex(Protocol):
    def load(self, topic_id: bytes) -> IndexState:
        """Load the state; an index of another topic is emptied first."""

    def clear(self) -> None:
        """Forget everything: the log will be read again."""

    def apply(self, entries: Iterable[Entry], position: int, leader_epoch: int) -> IndexState:
        """Apply what was read of the log up to this position."""

    def forget_below(self, start_offset: int) -> IndexState:
        """Note that the log begins here now: messages noted below wait no more."""

    def due(self, now_ms: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        """The first messages that are due, in the order of (due, id): at least one, if any is."""

    def of_ids(self, ids: Sequence[int], *, bytes_max: int) -> list[Waiting]:
        """The waiting messages with these ids, in the order of the ids; only the first, if they are large."""

    def waiting_under(self, keys: Sequence[bytes]) -> frozenset[bytes]:
        """The schedule keys among these under which a message waits."""

    def after(self, due_ms: int, id_: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        """The messages after this place in the order of (due, id)."""

    def noted_below(self, offset: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        """The messages whose notes lie below an offset, oldest note first."""

    def bytes_below(self, offset: int) -> int:
        """The size of the messages whose notes lie below an offset."""

    def ended_out_of_order(self, *, count_max: int) -> list[int]:
        """The ids of messages that were ended, where the log does not repeat that at its end yet."""

    def cancelled(self, ids: Sequence[int]) -> set[int]:
        """The ids among these that were cancelled by request; only recent cancellations are known."""

    def sync(self) -> None:
        """Make the index survive a power failure. Otherwise that may leave it as of any earlier time: valid,
        but with messages that wait although the log after its position says otherwise."""

    def close(self) -> None: ...


class DelayIndexes(Protocol):
    """The port to the index files."""

    def exists(self, directory: str) -> bool:
        """True if the partition in this directory has an index, or had one that was lost."""

    def keep(self, directory: str) -> None:
        """Remember that the partition has an index, whatever happens to the index. Blocks."""

    def of(self, directory: str) -> DelayIndex:
        """The index of the partition in this directory, to be loaded."""
