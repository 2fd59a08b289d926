"""Invariants of a compacted topic that gets fewer partitions while producers continue.

Its closed partitions are copied to those that take their messages. There, the last message of every key is
the last acknowledged one, or one whose outcome its producer does not know. No message is there twice, and
none after a later one of its key: the copy of an old message must not replace a newer one.

Each key has one writer, which sends unacknowledged messages again, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay.core.topic_partition import TopicPartition
from forebay.sim.models.facts import name_of
from forebay.sim.models.keyed import Write


class FoldedKeys:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._writes: dict[bytes, list[Write]] = {}
        self._homes: dict[bytes, int] = {}

    def send(self, at: TopicPartition, key: bytes, write: Write) -> None:
        self._writes.setdefault(key, []).append(write)
        self._homes[key] = at[1]

    def finish(self, at: TopicPartition, count: int, found: Sequence[tuple[bytes, bytes]]) -> None:
        """Compare all messages of a remaining partition, in their order, with what was written.

        `count`: the number of remaining partitions.
        """
        by_key: dict[bytes, list[bytes]] = {}
        for key, value in found:
            by_key.setdefault(key, []).append(value)
        for key, home in self._homes.items():
            if home % count == at[1]:
                for problem in _problems(self._writes[key], by_key.pop(key, [])):
                    self._fail(f"key {key.decode()} in {name_of(at)}: {problem}")
        if by_key:
            self._fail(f"nobody has written {sorted(by_key)} to {name_of(at)}")


def _problems(writes: Sequence[Write], values: Sequence[bytes]) -> list[str]:
    problems: list[str] = []
    numbers = {write.value: number for number, write in enumerate(writes) if write.value}
    last = -1
    for value in values:
        if not value:
            continue
        number = numbers.get(value)
        if number is None or not writes[number].possible:
            problems.append(f"{value!r} was not written, or its transaction was aborted")
        elif number <= last:
            problems.append(f"{value!r} is there twice, or behind what was written later")
        else:
            last = number
    certain = next((number for number in reversed(range(len(writes))) if writes[number].certain), None)
    if certain is not None and not _may_be_last(writes, certain, values[-1] if values else b""):
        problems.append(f"{values[-1:]} is the last, but {writes[certain].value!r} was acknowledged")
    return problems


def _may_be_last(writes: Sequence[Write], certain: int, value: bytes) -> bool:
    """True if the last message of a key may have this value; None if it was deleted.

    A deletion is there or not: it is removed after a while.
    """
    return any(write.value == value and write.possible for write in writes[certain:])
