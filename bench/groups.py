"""Consumer groups: how long until partitions are assigned, how many commits a second, what a group weighs.

The members are requests over plain sockets: what is measured is the broker, not a client library.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench.client import Client, expect_success, expect_success_soon
from bench.frames import frame_bytes, numbered
from bench.load import Rounds, Stream, run_load
from bench.report import Figure
from bench.rounds import fresh_topic
from bench.server import Address, ForebayServer
from bench.suite import Suite
from forebay.errors import ErrorCode
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

JOIN, SYNC, COMMIT, FIND = 5, 3, 8, 3
MEMBERS = 50
COMMIT_CONNECTIONS = 8
COMMIT_ROUND_S = 1.0
WEIGHED_GROUPS = 5_000
SESSION_MS = 30_000
GROUP_KEY_TYPE = 0
_names = (f"bench-group-{number}" for number in itertools.count())


class Member:
    """A member of a classic group, one connection."""

    def __init__(self, address: Address, group: str) -> None:
        self.client = Client(address)
        self.group = group
        self.member_id = ""
        self.generation_id = -1

    def enter(self) -> None:
        """The broker gives it a member id, and expects it to join with that."""
        self.post_join()
        answer: JoinGroupResponse = self.client.read()
        if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            expect_success("joining", answer.error_code)
        self.member_id = answer.member_id

    def post_join(self) -> None:
        protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(40))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.client.post(request, JOIN)

    def read_join(self) -> list[str]:
        """The members of the generation, if this is the one that assigns."""
        answer: JoinGroupResponse = self.client.read()
        expect_success("joining", answer.error_code)
        self.generation_id = answer.generation_id
        return [member.member_id for member in answer.members]

    def post_sync(self, members: Sequence[str]) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation_id,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=bytes(40)) for name in members
            ],
        )
        self.client.post(request, SYNC)

    def read_sync(self) -> None:
        expect_success("syncing", self.client.read().error_code)


def find_coordinator(client: Client, key: str, key_type: int = GROUP_KEY_TYPE) -> None:
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    expect_success_soon("finding a coordinator", lambda: client.ask(request, FIND).error_code)


def rebalance(members: Sequence[Member]) -> float:
    """Seconds from the last join until the last member has its assignment."""
    for member in members[1:]:
        member.post_join()
    # The coordinator takes requests of different connections in no certain order: this one must come last.
    time.sleep(0.05)
    started = time.perf_counter()
    members[0].post_join()
    rosters = [member.read_join() for member in members]
    for member, roster in zip(members, rosters, strict=True):
        member.post_sync(roster)
    for member in members:
        member.read_sync()
    return time.perf_counter() - started


def first_assignment(address: Address) -> float:
    """Seconds from the first question until one member of a new group has its partitions."""
    member = Member(address, next(_names))
    with member.client as client:
        started = time.perf_counter()
        find_coordinator(client, member.group)
        member.enter()
        member.post_join()
        roster = member.read_join()
        member.post_sync(roster)
        member.read_sync()
        return time.perf_counter() - started


def rebalance_of_many(address: Address) -> float:
    group = next(_names)
    with ExitStack() as stack:
        members = [Member(address, group) for _ in range(MEMBERS)]
        for member in members:
            stack.enter_context(member.client)
            member.enter()
        rebalance(members[:1])
        return rebalance(members)


def commit_request(group: str, topic: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )


def commits(suite: Suite, topic: str, connections: int) -> Rounds:
    """Each connection commits for a group of its own, one commit after the other, as consumers do."""
    rounds = Rounds()
    for _ in suite.each_round(f"commits, {connections} consumers"):
        frames = [frame_bytes(commit_request(next(_names), topic), COMMIT) for _ in range(connections)]
        rounds.append(
            run_load(
                suite.broker,
                [
                    Stream(
                        blobs=numbered(frame, 8), payload_bytes_per_blob=0, window=1, seconds=COMMIT_ROUND_S
                    )
                    for frame in frames
                ],
            )
        )
    return rounds


def group_weight_kb(suite: Suite) -> float:
    """Memory of a thousand groups with one committed offset each."""
    with ForebayServer(suite.scratch, "groups") as broker, Client(broker.address) as client:
        client.create_topic("weighed")
        find_coordinator(client, "group")
        before = broker.rss_bytes()
        with ExitStack() as stack:
            many = [stack.enter_context(Client(broker.address)) for _ in range(50)]
            for start in range(0, WEIGHED_GROUPS, len(many)):
                for number, each in enumerate(many, start):
                    each.post(commit_request(f"weighed-{number:06}", "weighed"), COMMIT)
                for each in many:
                    each.read()
        return (broker.rss_bytes() - before) / 1024 / (WEIGHED_GROUPS / 1000)


def group_figures(suite: Suite) -> list[Figure]:
    median = statistics.median
    with fresh_topic(suite.broker) as (client, topic):
        find_coordinator(client, "group")
        address = suite.broker.address
        first = [first_assignment(address) for _ in suite.each_round("first assignment")]
        many = [rebalance_of_many(address) for _ in suite.each_round(f"rebalance of {MEMBERS} members")]
        one, several = commits(suite, topic, 1), commits(suite, topic, COMMIT_CONNECTIONS)
    print("  weight of groups", flush=True)
    weight_kb = group_weight_kb(suite)
    return [
        _figure("first assignment in a new group", median(first) * 1000, "ms"),
        _figure(f"rebalance of {MEMBERS} members, after the last join", median(many), "s", at_most=1.0),
        _figure("offset commits, 1 consumer", one.median("requests_per_s"), "/s"),
        _figure(
            f"offset commits, {COMMIT_CONNECTIONS} consumers",
            several.median("requests_per_s"),
            "/s",
            at_least=2_000.0,
        ),
        _figure("CPU per offset commit", several.median("cpu_us_per_request"), "µs"),
        _figure("memory of 1,000 groups", weight_kb, "KB"),
    ]


def _figure(
    name: str, value: float, unit: str, *, at_least: float | None = None, at_most: float | None = None
) -> Figure:
    return Figure(
        group="groups",
        name=name,
        value=value,
        unit=unit,
        at_least=at_least,
        at_most=at_most,
        judged="value",
    )
