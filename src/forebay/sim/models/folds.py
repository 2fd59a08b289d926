"""What must be true of a topic that gets fewer partitions while producers go on.

A message for a folded partition is in its log or in that of the partition that takes over. Of one producer,
all messages in the closed log come before those in the other: nothing is stored in it after the close.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forebay.core.topic_partition import TopicPartition
from forebay.sim.models.facts import Content, Sent, name_of
from forebay.sim.world.places import FOLDED, FOLDED_TO


def homes(at: TopicPartition) -> tuple[TopicPartition, ...]:
    """Where a message that was sent for a partition may be, the log that comes first in its order first."""
    if at not in FOLDED or at[1] < FOLDED_TO:
        return (at,)
    return at, (at[0], at[1] % FOLDED_TO)


class Folds:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._acknowledged: list[bytes] = []

    def acknowledge(self, value: bytes) -> None:
        """Its offset belongs to one of two partitions, and the producer is not told which."""
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
        last: dict[str, int] = {}
        for place in homes(at):
            found = stored.get(place, {})
            for offset in sorted(found):
                message = sent.get(found[offset])
                if message is None or message.at != at or not message.exactly_once:
                    continue
                if message.number <= last.get(message.producer, -1):
                    self._fail(f"{found[offset]!r} is at {name_of(place, offset)}, after what was sent later")
                last[message.producer] = message.number
