"""Fewer partitions: folding them, and notes about partitions that are folded or come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from forebay.operations.client import Client, CommandError
from forebay.operations.local_time import local_time
from forebay.operations.wire import WireConnection, check
from forebay.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from forebay.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

_TIMEOUT_MS = 30_000
_PAGE = 2000


class Copies(NamedTuple):
    """Folded partitions of a compacted topic, which are copied one after the other."""

    first: int
    next: int
    end: int


class Closed(NamedTuple):
    """A topic's folded partitions."""

    into: Mapping[int, int]
    """The partition that takes the messages for each of them."""
    since_ms: int
    drop_ms: int | None
    copies: Copies | None = None
    """Set if they are copied before they are closed."""
    gathering: tuple[int, ...] = ()
    """Partitions that are about to take messages again."""
    draining: tuple[int, ...] = ()
    """Partitions that took their messages, and may have open transactions with them."""


def fold(client: Client, name: str, count: int, *, drop_after_ms: int | None, allow_key_moves: bool) -> None:
    """Close the partitions from `count` on."""
    wanted = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None,
        drop_after_ms=-1 if drop_after_ms is None else drop_after_ms,
        allow_key_moves=allow_key_moves,
    )
    with WireConnection.open(client) as connection:
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
        (result,) = connection.ask(request, CreatePartitionsResponse).results
    check(result.error_code, result.error_message)


def closed_partitions(client: Client, names: Iterable[str]) -> dict[str, Closed]:
    """The folded partitions of topics. A broker that does not know the request reports none."""
    found: dict[str, Closed] = {}
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=_PAGE
    )
    try:
        with WireConnection.open(client) as connection:
            while True:
                response = connection.ask(request, DescribeTopicPartitionsResponse)
                for topic in response.topics:
                    into = {
                        part.partition_index: part.folded_into
                        for part in topic.partitions
                        if part.folded_into >= 0
                    }
                    copies = None
                    if topic.copies_from >= 0:
                        copies = Copies(topic.copies_from, topic.copies_next, topic.copies_end)
                    gathering, draining = tuple(topic.gathering), tuple(topic.draining)
                    if into or copies or gathering or draining:
                        before = found.get(topic.name or "")
                        drop_ms = None if topic.drop_ms < 0 else topic.drop_ms
                        into = {**(before.into if before else {}), **into}
                        found[topic.name or ""] = Closed(
                            into, topic.closed_ms, drop_ms, copies, gathering, draining
                        )
                if response.next_cursor is None:
                    return found
                request.cursor = response.next_cursor
    except CommandError:
        return found  # the rest of the description still helps


def closing_note(closed: Closed, retention_ms: int) -> str:
    """The fate of folded partitions: when they will be gone, or that they come back."""
    notes = [_growing_note(closed)] if closed.gathering or closed.draining else []
    if closed.copies is not None:
        notes.append(_copying_note(closed.copies, closed.drop_ms))
    elif closed.into:
        notes.append(_folded_note(closed, retention_ms))
    return "\n".join(notes)


def _folded_note(closed: Closed, retention_ms: int) -> str:
    first, last = min(closed.into), max(closed.into)
    which = f"partition {first} is" if first == last else f"partitions {first} to {last} are"
    since = local_time(closed.since_ms)
    text = f"{which} folded since {since}: new messages go to others, old ones stay readable"
    if closed.drop_ms is not None:
        return f"{text} until {local_time(closed.drop_ms)} at the latest"
    if retention_ms < 0:
        return f"{text} until they are deleted: retention.ms=-1 never empties them"
    return f"{text} until retention has deleted them, by {local_time(closed.since_ms + retention_ms)} or so"


def _growing_note(closed: Closed) -> str:
    """A note that the count cannot change again until this is over."""
    if closed.gathering:
        return (
            f"{listed(closed.gathering)} coming back: refused until the numbers of producers are known there "
            "(clients try again)"
        )
    return (
        f"closed partitions are back; {listed(closed.draining)} waiting for the end of transactions that "
        "were open then. Until then the number of partitions cannot be changed"
    )


def listed(indexes: Sequence[int]) -> str:
    if len(indexes) == 1:
        return f"partition {indexes[0]} is"
    return f"partitions {', '.join(map(str, indexes))} are"


def _copying_note(copies: Copies, drop_ms: int | None) -> str:
    first, last, count = copies.first, copies.end - 1, copies.end - copies.first
    which = f"partition {first} is" if first == last else f"partitions {first} to {last} are"
    if copies.next < copies.end:
        return (
            f"{which} being folded: {copies.next - first} of {count} copied to the others and closed, "
            f"partition {copies.next} is being copied"
        )
    until = "forebay.fold.grace.ms is over" if drop_ms is None else f"{local_time(drop_ms)} or so"
    return f"{which} folded: all of {count} copied to the others; they stay readable until {until}"
