"""Invariants of a topic that gets fewer partitions, and more again, while producers continue.

A message for a folded partition is in its log or in that of the partition that takes over. The messages of
one producer are in the one while the partition is open, and in the other while it is closed, in the order in
which they were sent: nothing is stored in a closed partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forebay.core.topic_partition import TopicPartition
from forebay.sim.models.facts import Content, Sent, name_of
from forebay.sim.world.places import FOLDED, FOLDED_TO


def homes(at: TopicPartition) -> tuple[TopicPartition, ...]:
    """The possible partitions of a message: while the one it was sent for is open, and while it is closed."""
    if at not in FOLDED or at[1] < FOLDED_TO:
        return (at,)
    return at, (at[0], at[1] % FOLDED_TO)


class Removed:
    """Messages of closed partitions that were deleted, or are about to be. These partitions may be removed at
    any time."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        """The position up to which each was read, 0 if it was removed before that."""
        self.stored: dict[TopicPartition, dict[int, bytes]] = {}
        self.visible: dict[TopicPartition, dict[int, bytes]] = {}
        """The messages that committed readers saw."""

    def add(
        self, at: TopicPartition, end: int, stored: Mapping[int, bytes], visible: Mapping[int, bytes]
    ) -> None:
        self.positions[at] = end
        self.stored.setdefault(at, {}).update(stored)
        self.visible.setdefault(at, {}).update(visible)

    def note_gone(self, at: TopicPartition) -> None:
        """Note that a partition was removed. One that never had a message may go before it is read."""
        self.positions.setdefault(at, 0)


class Folds:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._acknowledged: list[bytes] = []
        self.changes = 0
        """The maximum number of changes of the partition count: first partitions are closed, then opened."""
        self.removed = Removed()

    def acknowledge(self, value: bytes) -> None:
        """The offset belongs to one of two partitions, and the producer is not told which."""
        self._acknowledged.append(value)

    def finish(self, stored: Content, sent: Mapping[bytes, Sent]) -> None:
        for value in self._acknowledged:
            places = homes(sent[value].at)
            count = sum(list(stored.get(place, {}).values()).count(value) for place in places)
            if not count:
                self._fail(f"{value!r} was acknowledged, and is in none of {places}")
            elif count > 1 and sent[value].exactly_once:
                self._fail(f"{value!r} is in {places} {count} times")
        for at in FOLDED:
            self._check_order(at, stored, sent)

    def _check_order(self, at: TopicPartition, stored: Content, sent: Mapping[bytes, Sent]) -> None:
        placed: dict[str, dict[int, TopicPartition]] = {}
        for place in homes(at):
            last: dict[str, int] = {}
            found = stored.get(place, {})
            for offset in sorted(found):
                message = sent.get(found[offset])
                if message is None or message.at != at or not message.exactly_once:
                    continue
                if message.number <= last.get(message.producer, -1):
                    self._fail(f"{found[offset]!r} is at {name_of(place, offset)}, after what was sent later")
                last[message.producer] = message.number
                placed.setdefault(message.producer, {})[message.number] = place
        for producer, numbers in placed.items():
            self._check_phases(at, producer, numbers)

    def _check_phases(self, at: TopicPartition, producer: str, numbers: Mapping[int, TopicPartition]) -> None:
        phase, places = 0, homes(at)
        for number in sorted(numbers):
            if numbers[number] != places[phase % len(places)]:
                phase += 1
                if phase > self.changes:
                    self._fail(
                        f"message {number} of {producer} for {name_of(at)} is in {name_of(numbers[number])}, "
                        f"though there were only {self.changes} changes before it"
                    )
                    return
