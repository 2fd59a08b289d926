"""Compares the leader epoch that a client knows with the one that this broker knows.

Brokers hear of an election at slightly different times. A client that the old leader has sent to the new one
may be there before the news. Were it refused, it would back off, librdkafka for half a second; so its request
waits for the news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from forebay.broker.partition.partition import Partition
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import StoreError
from forebay.core.cluster.image import ClusterImage
from forebay.errors import ErrorCode, KafkaError

_NEWS_S_MAX = 0.5


class KnownTerm(NamedTuple):
    """A leader epoch that a client knows of."""

    topic: str
    partition: int
    leader_epoch: int

    def is_news(self, image: ClusterImage) -> bool:
        """True if it is later than the leader epoch in this image."""
        state = image.partition(self.topic, self.partition)
        return state is not None and self.leader_epoch > state.leader_epoch


async def hear_of(terms: Sequence[KnownTerm], metadata: Metadata) -> None:
    """Wait until the image shows these terms, or later ones; not for long, since a client may be wrong."""
    try:
        async with asyncio.timeout(_NEWS_S_MAX):
            while any(term.is_news(metadata.image) for term in terms):
                await metadata.wait_for(metadata.image.revision + 1)
    except (TimeoutError, StoreError):
        pass


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Refuse a client whose idea of the leadership is older or newer than ours; -1 means it has none."""
    if epoch >= 0 and epoch != partition.leader_epoch:
        check_epoch(partition.leader_epoch, epoch)


def check_epoch(known: int, epoch: int) -> None:
    """Like `check_leader_epoch`, with the leader epoch that this broker knows."""
    if epoch < 0 or epoch == known:
        return
    if epoch < known:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is over")
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here yet")


def is_end_known(partition: Partition) -> bool:
    """True if a leader has heard from its followers what is committed.

    Until then its high watermark may lie below what the leader before has shown to consumers.
    """
    leadership = partition.leadership
    return leadership is None or partition.high_watermark >= leadership.start_offset


def check_end_known(partition: Partition) -> None:
    """A new leader does not tell where the log ends before it knows."""
    if not is_end_known(partition):
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition} has a new leader; try again")
