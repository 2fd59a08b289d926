"""Share groups on 100 partitions by their number of members. One connection speaks for all members."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from bench.client import Client, expect_success
from bench.groups import find_coordinator
from bench.scale.curve import Row
from bench.scale.partitions import settle, timed
from bench.server import BenchError, ForebayServer
from forebay.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

SIZES = (100, 300, 1_000)
PARTITIONS = 100
SETTLE_S_MAX = 60.0
AT_ONCE = 50
_TOPIC = "shared"
_LARGE_GROUPS = "group.share.max.size=1000"


class _Member:
    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._member_id = str(uuid4())
        self.epoch = 0
        self.partitions: list[int] = []

    def beat(self) -> None:
        self.post()
        self.read()

    def post(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=[_TOPIC] if self.epoch == 0 else None,
        )
        self._client.post(request)

    def read(self) -> None:
        answer: ShareGroupHeartbeatResponse = self._client.read()
        expect_success("a heartbeat", answer.error_code)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.partitions = [
                index for each in answer.assignment.topic_partitions for index in each.partitions
            ]

    def leave(self) -> None:
        self.epoch = -1
        self.beat()


def share_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    with ForebayServer(scratch, "share-groups", _LARGE_GROUPS) as broker:
        with Client(broker.address) as client:
            client.create_topic(_TOPIC, partitions=PARTITIONS)
        return [_measure(broker, size) for size in sizes]


def _measure(broker: ForebayServer, size: int) -> Row:
    group = f"share-{size}"
    with Client(broker.address) as client:
        find_coordinator(client, group)
        settle(broker)
        members = [_Member(client, group) for _ in range(size)]
        row: Row = {"members": size}
        cpu_s, took_s = timed(broker, lambda: _beat(members))
        row["join: CPU ms each"] = 1000 * cpu_s / size
        settled_cpu_s, settled_s = timed(broker, lambda: _settle(members))
        row["join and settle: CPU s"], row["join and settle: s"] = cpu_s + settled_cpu_s, took_s + settled_s
        row["heartbeat: CPU ms"] = 1000 * timed(broker, lambda: _beat(members))[0] / size
        left = members.pop(0)
        row["one leaves, settle: CPU s"], row["one leaves, settle: s"] = timed(
            broker, lambda: _settle_without(left, members)
        )
        for member in members:
            member.leave()
    print(f"  {row}", flush=True)
    return row


def _beat(members: Sequence[_Member]) -> None:
    """All of them, some at the same time, as members do that do not wait for each other."""
    for start in range(0, len(members), AT_ONCE):
        some = members[start : start + AT_ONCE]
        for member in some:
            member.post()
        for member in some:
            member.read()


def _settle(members: Sequence[_Member]) -> None:
    """Until all are of one epoch, each has a partition, and each partition has as many as the others."""
    deadline = time.monotonic() + SETTLE_S_MAX
    while not _is_settled(members):
        if time.monotonic() > deadline:
            raise BenchError(f"a share group has not settled within {SETTLE_S_MAX:.0f} s")
        _beat(members)


def _settle_without(left: _Member, members: Sequence[_Member]) -> None:
    left.leave()
    _beat(members)
    _settle(members)


def _is_settled(members: Sequence[_Member]) -> bool:
    shares = [0] * PARTITIONS
    for member in members:
        for index in member.partitions:
            shares[index] += 1
    is_fair = min(shares) > 0 and max(shares) - min(shares) <= 1
    return is_fair and all(each.partitions for each in members) and len({each.epoch for each in members}) == 1
