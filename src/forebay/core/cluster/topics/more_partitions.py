"""More partitions for a topic that was folded: closed ones take messages again, decided on an image.

From 12 to 4 to 8: partitions 4 to 7 take their own messages again, 8 to 11 stay closed. A producer's sequence
numbers for partition 5 are in partition 1 meanwhile, so 5 has to *gather* them from 1 before it takes
messages. Until then it is closed, and clients retry.

The folds before and after the change determine where the messages for partition p went, and where they go. If
n partitions are open and k will be, and n divides k, then p goes to p modulo k: a key then keeps one
partition, also for clients that still count more partitions, if k divides that number. Otherwise a partition
that stays closed is folded as before.

A partition that took messages for others may have open transactions with them. Until these have ended it is
*draining*: their markers go to it, too. Meanwhile the topic's partition count cannot change again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from typing import NamedTuple

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, TopicPut
from forebay.core.cluster.images.topic_folds import GENERATIONS_END, Fold, Folding, Growth, Stop, stops
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.errors import ErrorCode, KafkaError


class Moved(NamedTuple):
    """The partition where messages for a partition were stored, and the one where they are stored now."""

    named: int
    source: Stop
    target: Stop


def check_settled(topic: TopicImage) -> None:
    """Refuse to change the count again while the last change is unfinished."""
    folding = topic.record.folding
    if folding is None:
        return
    if folding.copied is not None:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"partitions of {topic.name!r} are being folded and copied into others; wait until they are gone",
        )
    if folding.growth is not None:
        waits_for = "transactions that were open then have not ended"
        if folding.growth.gathering:
            waits_for = f"partitions {', '.join(map(str, folding.growth.gathering))} are coming back"
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.name!r} has just got more partitions, and {waits_for}; try again in a while",
        )
    if folding.generation + 1 >= GENERATIONS_END:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"the partitions of {topic.name!r} were folded {GENERATIONS_END} times: copy it to a new topic",
        )


def check_not_taken_away(topic: TopicImage, count: int) -> None:
    """Refuse a count that would need partitions which were folded and have disappeared."""
    folding, current = topic.record.folding, len(topic.partitions)
    if folding is not None and current < min(count, folding.named_end):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"partitions {current} to {folding.named_end - 1} of {topic.name!r} were folded and are gone; "
            f"such a topic cannot get more than {current} yet",
        )


def regrown(folding: Folding, open_count: int, count: int) -> Folding:
    """The folds of a topic that has `open_count` open partitions now and will have `count`."""
    generation = folding.generation + 1
    left = tuple(_merged(_left(folding.folds, open_count, count, generation)))
    moved = list(_moved(folding.folds, left))
    growth = Growth(
        former=folding.folds,
        gathering=tuple(sorted({each.target.partition for each in moved})),
        draining=tuple(sorted({each.source.partition for each in moved})),
    )
    return replace(
        folding,
        folds=left,
        drop_ms=folding.drop_ms if left else None,
        generation=max([folding.generation, *(fold.generation for fold in left)]),
        growth=None if growth.is_over else growth,
    )


def _left(folds: tuple[Fold, ...], open_count: int, count: int, generation: int) -> Iterator[Fold]:
    """The folds that remain, one for each partition."""
    for fold in folds:
        for index in range(max(fold.first, count), fold.end):
            if count % open_count == 0 and index % fold.divisor < open_count <= index % count:
                yield Fold(index, index + 1, count, generation)
            else:
                yield Fold(index, index + 1, fold.divisor, fold.generation)


def _merged(folds: Iterator[Fold]) -> Iterator[Fold]:
    last: Fold | None = None
    for fold in folds:
        if last is not None and last[2:] == fold[2:]:
            last = last._replace(end=fold.end)
            continue
        if last is not None:
            yield last
        last = fold
    if last is not None:
        yield last


def _moved(before: tuple[Fold, ...], after: tuple[Fold, ...]) -> Iterator[Moved]:
    for index in range(before[0].first if before else 0, before[-1].end if before else 0):
        *_, source = stops(before, index)
        *_, target = stops(after, index)
        if source.partition != target.partition:
            yield Moved(index, source, target)


# -- while it grows ----------------------------------------------------------------------------------------


def gathered_by(topic: TopicImage, index: int) -> dict[int, dict[tuple[int, int | None], int | None]]:
    """The sequence numbers that a partition has to gather (partition and fold), by the partition to ask.

    The values are the folds under which they are kept from now on; None: under the producers' own ids.
    """
    folding, wanted = topic.record.folding, dict[int, dict[tuple[int, int | None], int | None]]()
    if folding is None or folding.growth is None:
        return wanted
    for moved in _moved(folding.growth.former, folding.folds):
        if moved.target.partition == index:
            of_source = wanted.setdefault(moved.source.partition, {})
            of_source[moved.named, moved.source.generation] = moved.target.generation
    return wanted


def marker_stops(topic: TopicImage, index: int) -> tuple[Stop, ...]:
    """The partitions that may have an open transaction of a producer that wrote to this one."""
    folding, found = topic.record.folding, topic.stops(index)
    if folding is None or folding.growth is None:
        return found
    earlier = stops(folding.growth.former, index)
    return found + tuple(
        stop for stop in earlier if stop not in found and 0 <= stop.partition < len(topic.partitions)
    )


def growth_of(topic: TopicImage | None) -> Growth | None:
    """The unfinished work of a topic that is growing; None if it is not."""
    folding = None if topic is None else topic.record.folding
    return None if folding is None else folding.growth


def is_same_growth(topic: TopicImage | None, before: TopicImage) -> bool:
    """True if a topic is still in the same growth as before. No two growths have the same folds."""
    growth, earlier = growth_of(topic), growth_of(before)
    return growth is not None and earlier is not None and growth.former == earlier.former


def record_growth(
    image: ClusterImage, seen: TopicImage, gathered: Container[int], drained: Container[int]
) -> list[Change]:
    """Record the partitions that have gathered what they need, and those that are drained.

    `seen`: the topic when they began. It says nothing about a later growth.
    """
    topic = image.topic_by_id(seen.topic_id)
    growth, folding = growth_of(topic), None if topic is None else topic.record.folding
    if topic is None or folding is None or growth is None or not is_same_growth(topic, seen):
        return []
    after = replace(
        growth,
        gathering=tuple(index for index in growth.gathering if index not in gathered),
        draining=tuple(index for index in growth.draining if index not in drained),
    )
    if after == growth:
        return []
    grown = replace(folding, growth=None if after.is_over else after)
    return [TopicPut(record=replace(topic.record, folding=grown))]
