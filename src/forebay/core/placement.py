"""Which brokers hold which partition: round robin, so that leaders and replicas spread evenly."""

from __future__ import annotations

from collections.abc import Sequence


def place(
    brokers: Sequence[int], *, partitions: int, replication_factor: int, first: int = 0
) -> tuple[tuple[int, ...], ...]:
    """The replicas of each partition, the leader first.

    `first` is the turn at which the round starts: the number of partitions that exist already gives
    small topics different brokers, and keeps a topic that grows going round where it stopped.
    """
    assert 0 < replication_factor <= len(brokers)
    count = len(brokers)
    # Each full round shifts the followers by one more, so that the load of a dead broker falls on all.
    return tuple(
        _replicas(brokers, first + index, replication_factor, shift=(first + index) // count)
        for index in range(partitions)
    )


def _replicas(brokers: Sequence[int], turn: int, replication_factor: int, shift: int) -> tuple[int, ...]:
    count = len(brokers)
    leader = turn % count
    if count == 1:
        return (brokers[0],)
    step = 1 + shift % (count - 1)
    followers = (
        brokers[(leader + 1 + (step - 1 + number) % (count - 1)) % count]
        for number in range(replication_factor - 1)
    )
    return (brokers[leader], *followers)
