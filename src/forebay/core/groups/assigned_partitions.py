"""Sets of partitions as groups assign them, and their form in requests and responses.

An assignment is a set of (topic id, partition), so two of them are reconciled by set operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

TopicPartition = tuple[bytes, int]
Partitions = frozenset[TopicPartition]
NOTHING: Partitions = frozenset()


class _HasPartitions(Protocol):
    topic_id: bytes
    partitions: list[int]


T_co = TypeVar("T_co", covariant=True)


class _MakesPartitions(Protocol[T_co]):
    def __call__(self, *, topic_id: bytes, partitions: list[int]) -> T_co: ...


class _MakesNamedPartitions(Protocol[T_co]):
    def __call__(self, *, topic_id: bytes, topic_name: str, partitions: list[int]) -> T_co: ...


def read_partitions(topics: Iterable[_HasPartitions]) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def write_partitions(make: _MakesPartitions[T_co], partitions: Partitions) -> list[T_co]:
    """Partitions by topic, in order, in the form of a message."""
    return [make(topic_id=topic, partitions=found) for topic, found in by_topic(partitions).items()]


def write_named(
    make: _MakesNamedPartitions[T_co], partitions: Partitions, names: Mapping[bytes, str]
) -> list[T_co]:
    """Like `write_partitions`, with topic names. Topics without a name are deleted, and left out."""
    return [
        make(topic_id=topic_id, topic_name=names[topic_id], partitions=found)
        for topic_id, found in by_topic(partitions).items()
        if topic_id in names
    ]


def by_topic(partitions: Partitions) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return topics
