"""Consumer groups by their number of members: what each costs the coordinator when it joins and at rest.

One connection speaks for all members: what is measured is the group.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.client import Client, expect_success, expect_success_soon
from bench.scale.curve import Row
from bench.scale.partitions import settle, timed
from bench.server import BenchError, ForebayServer
from forebay.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest

SIZES = (100, 300, 1_000, 3_000)
PARTITIONS = 1_000
HEARTBEAT, FIND = 1, 3
SETTLE_S_MAX = 60.0
AT_ONCE = 50
_TOPIC = "grouped"


class _Member:
    def __init__(self, client: Client, group: str, number: int) -> None:
        self._client = client
        self._group = group
        self.member_id = f"member-{number}"
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}

    def beat(self) -> None:
        self.post()
        self.read()

    def post(self) -> None:
        """A heartbeat that says what it owns. What it is to have no more it gives up before the next one."""
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=[_TOPIC] if joins else None,
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=found) for topic_id, found in self.owned.items()
            ],
        )
        self._client.post(request, HEARTBEAT)

    def read(self) -> None:
        answer: ConsumerGroupHeartbeatResponse = self._client.read()
        expect_success("a heartbeat", answer.error_code)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}


def member_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    with ForebayServer(scratch, "members", "group.consumer.assignment.interval.ms=0") as broker:
        with Client(broker.address) as client:
            client.create_topic(_TOPIC, partitions=PARTITIONS)
        return [_measure(broker, size) for size in sizes]


def _measure(broker: ForebayServer, size: int) -> Row:
    group = f"group-{size}"
    with Client(broker.address) as client:
        expect_success_soon(
            "finding a coordinator",
            lambda: int(client.ask(FindCoordinatorRequest(key=group), FIND).error_code),
        )
        settle(broker)
        members = [_Member(client, group, number) for number in range(size)]
        row: Row = {"members": size}
        cpu_s, took_s = timed(broker, lambda: _beat(members))
        row["join: CPU ms each"] = 1000 * cpu_s / size
        settled_cpu_s, settled_s = timed(broker, lambda: _settle(members))
        row["join and settle: CPU s"], row["join and settle: s"] = cpu_s + settled_cpu_s, took_s + settled_s
        row["heartbeat: CPU ms"] = 1000 * timed(broker, lambda: _beat(members))[0] / size
        members[0].epoch = -1
        left = members.pop(0)
        left.beat()
        row["one leaves, settle: CPU s"], row["one leaves, settle: s"] = timed(
            broker, lambda: _settle(members)
        )
    print(f"  {row}", flush=True)
    return row


def _beat(members: list[_Member]) -> None:
    """All of them, some at the same time, as members do that do not wait for each other."""
    for start in range(0, len(members), AT_ONCE):
        some = members[start : start + AT_ONCE]
        for member in some:
            member.post()
        for member in some:
            member.read()


def _settle(members: list[_Member]) -> None:
    """Until all partitions are owned, by each member as many as by the others."""
    deadline = time.monotonic() + SETTLE_S_MAX
    while not _is_settled([sum(map(len, each.owned.values())) for each in members]):
        if time.monotonic() > deadline:
            raise BenchError(f"a group has not settled within {SETTLE_S_MAX:.0f} s")
        _beat(members)


def _is_settled(shares: list[int]) -> bool:
    return sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1
