"""Answers that are large although their requests are small, in parts.

Metadata of all topics is a request of 23 bytes, and so is a list of all groups. Their answers grow with the
cluster. Such an answer is made in parts: a handler is given a part, which names what to answer now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

TOPICS_MAX = 50
PARTITIONS_MAX = 500
"""The most topics and partitions of a part: about two milliseconds of work."""
LISTED_MAX = 250
"""The most groups or transactions of a part."""


class TopicsPart(NamedTuple):
    """Topics to describe. A topic with many partitions has parts of its own."""

    names: Sequence[str] | None
    """None: those that the request names."""
    partitions: slice = slice(None)


class ListedPart(NamedTuple):
    """Groups or transactional ids of one partition of an internal topic."""

    shard: int
    names: Sequence[str]


def topic_parts(sizes: Iterable[tuple[str, int]]) -> Iterator[TopicsPart]:
    """Parts of all these topics, which are given with their numbers of partitions."""
    names: list[str] = []
    total = 0
    for name, size in sizes:
        if names and (len(names) == TOPICS_MAX or total + size > PARTITIONS_MAX):
            yield TopicsPart(names)
            names, total = [], 0
        if size > PARTITIONS_MAX:
            for partitions in partition_slices(size):
                yield TopicsPart([name], partitions)
        else:
            names.append(name)
            total += size
    if names:
        yield TopicsPart(names)


def partition_slices(size: int) -> Iterator[slice]:
    """The last one is open, because the topic may have more partitions by then."""
    for start in range(0, size, PARTITIONS_MAX):
        stop = start + PARTITIONS_MAX
        yield slice(start, stop if stop < size else None)


def listed_parts(shard: int, names: Sequence[str], filters: int) -> Iterator[ListedPart]:
    """`filters`: how many filters the request has. Each part looks at all of them."""
    most = max(LISTED_MAX, filters)
    for start in range(0, len(names), most):
        yield ListedPart(shard, names[start : start + most])


def present(known: Mapping[str, T], names: Iterable[str]) -> Iterator[T]:
    """Those of the names that are still there."""
    return (known[name] for name in names if name in known)
