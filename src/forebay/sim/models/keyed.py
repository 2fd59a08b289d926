"""The model of a compacted topic: the last message of every key is there, or a newer one.

Compaction removes messages that a later message of the same key has replaced. It must never remove the last
acknowledged one, and no earlier message may come back in its place. A key whose last message is a deletion
(no value) is there as a deletion, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forebay.core.topic_partition import TopicPartition
from forebay.lazy import dataclass
from forebay.sim.models.facts import Transaction, TransactionOutcome, name_of

_Place = tuple[TopicPartition, bytes]

_NEVER_SEEN = frozenset({TransactionOutcome.OPEN, TransactionOutcome.ABORTED})


@dataclass(eq=False, slots=True, kw_only=True)
class Write:
    value: bytes
    """Empty for a deletion, of which there may be many."""
    transaction: Transaction | None = None
    offset: int | None = None
    """Its offset, once that is known."""

    @property
    def certain(self) -> bool:
        """True if it is surely visible."""
        committed = self.transaction is None or self.transaction.outcome is TransactionOutcome.COMMITTED
        return committed and self.offset is not None

    @property
    def possible(self) -> bool:
        return self.transaction is None or self.transaction.outcome not in _NEVER_SEEN


class KeyedValues:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._writes: dict[_Place, list[Write]] = {}

    def send(self, at: TopicPartition, key: bytes, write: Write) -> None:
        self._writes.setdefault((at, key), []).append(write)

    def finish(self, at: TopicPartition, found: Mapping[bytes, tuple[int, bytes]]) -> None:
        """Compare the last message of each key, its offset and value, with what was written."""
        for (place, key), writes in self._writes.items():
            if place == at:
                problem = _problem(writes, found.get(key))
                if problem is not None:
                    self._fail(f"key {key.decode()} of {name_of(at)}: {problem}")
        unknown = [key for key in found if (at, key) not in self._writes]
        if unknown:
            self._fail(f"nobody has written {unknown} to {name_of(at)}")


def _problem(writes: list[Write], found: tuple[int, bytes] | None) -> str | None:
    certain = [write for write in writes if write.certain]
    last = max(certain, key=lambda write: write.offset or 0, default=None)
    if found is None:
        if last is None or not last.value or _may_be_deleted(last, writes):
            return None
        return f"{last.value!r}, written at {last.offset}, is gone"
    offset, value = found
    if last is not None and last.offset is not None and offset < last.offset:
        return f"{value!r} at {offset} is the last, but {last.value!r} was written at {last.offset}"
    alike = [write for write in writes if write.value == value and write.offset in (None, offset)]
    if not any(write.possible for write in alike):
        return f"{value!r} at {offset} was not written there, or its transaction was aborted"
    return None


def _may_be_deleted(last: Write, writes: list[Write]) -> bool:
    """True if a deletion may have followed: at an unknown offset, or in an undecided transaction."""
    assert last.offset is not None
    return any(
        write.possible and not write.value and (write.offset is None or write.offset > last.offset)
        for write in writes
    )
