"""Consumer groups (KIP-848) on 1,000 partitions by their number of members."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from bench.client import Client
from bench.scale.curve import Row
from bench.scale.heartbeats import INTERVAL_S, Member, measure
from bench.server import Address, ForebayServer
from forebay.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

SIZES = (100, 300, 1_000, 3_000)
PARTITIONS = 1_000
_TOPIC = "grouped"
_AT_ONCE = "group.consumer.assignment.interval.ms=0"
"""Otherwise the partitions of a member that leaves are given to others a second later: it may not be the
only one to leave."""
_INTERVAL = f"group.consumer.heartbeat.interval.ms={INTERVAL_S * 1000:.0f}"


class _Consumer(Member):
    def __init__(self, address: Address, group: str) -> None:
        super().__init__(address, group, str(uuid4()))
        self._owned: dict[bytes, list[int]] = {}

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """It says what it owns. What it is to have no more it gives up before the next heartbeat."""
        joins = self.epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=[_TOPIC] if joins else None,
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=found)
                for topic_id, found in self._owned.items()
            ],
        )

    def take(self, assignment: Assignment) -> None:
        self._owned = {each.topic_id: each.partitions for each in assignment.topic_partitions}

    @property
    def partitions(self) -> list[int]:
        return [index for found in self._owned.values() for index in found]


def member_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    with ForebayServer(scratch, "members", _AT_ONCE, _INTERVAL) as broker:
        with Client(broker.address) as client:
            client.create_topic(_TOPIC, partitions=PARTITIONS)
        return [measure(broker, f"group-{size}", size, _Consumer, _is_spread) for size in sizes]


def _is_spread(members: Sequence[_Consumer]) -> bool:
    """Each partition has one owner, and each member as many as the others."""
    owned = [index for member in members for index in member.partitions]
    shares = [len(member.partitions) for member in members]
    return sorted(owned) == list(range(PARTITIONS)) and max(shares) - min(shares) <= 1
