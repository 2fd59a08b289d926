"""Share groups on 100 partitions by their number of members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from bench.client import Client
from bench.scale.curve import Row
from bench.scale.heartbeats import INTERVAL_S, Member, measure
from bench.server import Address, ForebayServer
from forebay.wire.messages.share_group_heartbeat import Assignment, ShareGroupHeartbeatRequest

SIZES = (100, 300, 1_000)
PARTITIONS = 100
_TOPIC = "shared"
_LARGE_GROUPS = "group.share.max.size=1000"
_INTERVAL = f"group.share.heartbeat.interval.ms={INTERVAL_S * 1000:.0f}"


class _Sharer(Member):
    def __init__(self, address: Address, group: str) -> None:
        super().__init__(address, group, str(uuid4()))
        self._assigned: list[int] = []

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=[_TOPIC] if self.epoch == 0 else None,
        )

    def take(self, assignment: Assignment) -> None:
        self._assigned = [index for each in assignment.topic_partitions for index in each.partitions]

    @property
    def partitions(self) -> list[int]:
        return self._assigned


def share_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    with ForebayServer(scratch, "share-groups", _LARGE_GROUPS, _INTERVAL) as broker:
        with Client(broker.address) as client:
            client.create_topic(_TOPIC, partitions=PARTITIONS)
        return [measure(broker, f"share-{size}", size, _Sharer, _is_spread) for size in sizes]


def _is_spread(members: Sequence[_Sharer]) -> bool:
    """Each member has a partition, and each partition as many members as the others."""
    shares = Counter(index for member in members for index in member.partitions)
    is_even = len(shares) == PARTITIONS and max(shares.values()) - min(shares.values()) <= 1
    return is_even and all(member.partitions for member in members)
