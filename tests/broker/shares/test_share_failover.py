"""Share groups over three brokers, of which those that matter die or hand over.

A message counts as accepted when its acknowledgement was answered without an error. Whatever happens, all
messages are accepted in the end, none twice, and from the second delivery on no delivery is forgotten. An
acknowledgement that got an error may count, because its answer alone was lost: then the message does not come
again, and nobody can say that it was accepted. Nor does one say anything that comes when the lock is over: if
another member has accepted the message meanwhile, it is answered without an error, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.shares.persistence.state_store import ShareStateStore
from forebay.broker.shares.persistence.state_writes import StateWrites
from forebay.core.shares.sessions import SessionKey
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.share_member import GROUP_RESOURCE, RELEASE, Held, ShareMember, ack, held, parts
from support.clients.transacting import COME_BACK, MOVED
from support.clients.wire_client import batch, create_topic, only_partition, produce

GROUP, TOPIC = "workers", "jobs"
OFFSETS, STATES = "__consumer_offsets", "__share_group_state"
MESSAGES = 60
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.write.timeout.ms": "30000",
    "leader.imbalance.check.interval.seconds": "3600",
}
LEADER, SHARE_COORDINATOR, GROUP_COORDINATOR = 1, 2, 3
POLL_MS = 50


class Member:
    """Finds the leader, opens a session when it has none, and goes on after errors, as clients do."""

    def __init__(self, cluster: LocalCluster, topic_id: bytes, lock_ms: int) -> None:
        self.cluster = cluster
        self._lock_s = lock_ms / 1000
        self._held_until = 0.0
        """When the locks of what was taken last are over at the earliest."""
        self.accepted: Counter[int] = Counter()
        self.refused: dict[int, int | None] = {}
        """Offsets whose acknowledgement got an error, or no answer, or came late."""
        self.counts: dict[int, list[int]] = {}
        self._share: Any = ShareMember(None, GROUP, topic_id)  # type: ignore[arg-type]
        self.id: str = self._share.member

    async def take(self, **how: Any) -> list[Held]:
        """What one fetch brings; nothing if it fails."""
        self._held_until = asyncio.get_running_loop().time() + self._lock_s
        answer = await self._ask(self._share.fetch_request(wait_ms=POLL_MS, **how))
        if answer is None or answer.error_code or any(each.error_code for each in parts(answer).values()):
            self._share.epoch = 0
            return []
        found = held(answer)
        for each in found:
            self.counts.setdefault(each.offset, []).append(each.deliveries)
        return found

    async def acknowledge(self, *batches: Any, at: int | None = None) -> int | None:
        """The error code, None if nobody knows. `at` is the broker to ask if it is not the leader."""
        if self._share.epoch == 0:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        answer = await self._ask(self._share.acknowledge_request({0: [*batches]}), at)
        if answer is None or answer.error_code:
            self._share.epoch = 0
            return None if answer is None else answer.error_code
        code: int = parts(answer)[0].error_code
        return code

    async def accept(self, found: list[Held]) -> None:
        for each in found:
            code = await self.acknowledge(ack(each.offset))
            if code == ErrorCode.NONE and asyncio.get_running_loop().time() < self._held_until:
                self.accepted[each.offset] += 1
            else:
                self.refused[each.offset] = code

    async def _ask(self, request: Any, at: int | None = None) -> Any:
        try:
            return await self.cluster.ask(self.cluster.leader(TOPIC) if at is None else at, request, 2)
        except (KafkaError, KeyError, OSError):
            await asyncio.sleep(0.02)
            return None


async def fill(cluster: LocalCluster) -> bytes:
    (made,) = (await cluster.ask(1, create_topic(TOPIC), 7)).topics
    await cluster.knows(TOPIC)
    await cluster.in_sync(TOPIC)
    assert await send(cluster, *[b"%d" % n for n in range(MESSAGES)]) == 0
    topic_id: bytes = made.topic_id
    return topic_id


async def send(cluster: LocalCluster, *values: bytes) -> int:
    """The offset of the first one."""

    async def attempt() -> tuple[Any, int]:
        data = batch(*values)
        answer = only_partition(await cluster.ask(cluster.leader(TOPIC), produce(TOPIC, data, acks=-1), 9))
        return answer, answer.error_code

    offset: int = (await retried(attempt, *MOVED)).base_offset
    return offset


async def join(cluster: LocalCluster, lock_ms: int, reset: str) -> None:
    settings = {
        "share.auto.offset.reset": reset,
        "share.record.lock.duration.ms": str(lock_ms),
        "share.delivery.count.limit": "10",
    }
    configs = [AlterableConfig(name=name, config_operation=0, value=settings[name]) for name in settings]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=configs)
    await cluster.ask(1, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    await cluster.ask(1, FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 6)
    await cluster.knows(OFFSETS)
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="m" * 36, member_epoch=0, subscribed_topic_names=[TOPIC]
    )

    async def attempt() -> tuple[Any, int]:
        answer = await cluster.ask(cluster.leader(OFFSETS), request, 1)
        is_assigned = answer.assignment is not None and answer.assignment.topic_partitions
        return answer, answer.error_code or (0 if is_assigned else ErrorCode.COORDINATOR_NOT_AVAILABLE)

    assert (await retried(attempt, *COME_BACK)).error_code == ErrorCode.NONE


@asynccontextmanager
async def working(
    tmp_path: Path, *, lock_ms: int = 30_000, reset: str = "earliest"
) -> AsyncIterator[tuple[LocalCluster, list[Member]]]:
    """Each role is on a broker of its own: the leader, the share coordinator, the group coordinator."""
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic_id = await fill(cluster)
        await join(cluster, lock_ms, reset)
        for topic, node in ((TOPIC, LEADER), (STATES, SHARE_COORDINATOR), (OFFSETS, GROUP_COORDINATOR)):
            await cluster.knows(topic)
            await cluster.in_sync(topic)
            await cluster.lead(topic, 0, node)
        yield cluster, [Member(cluster, topic_id, lock_ms) for _ in range(2)]


async def start_offset(cluster: LocalCluster) -> int:
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)

    async def attempt() -> tuple[Any, int]:
        request = DescribeShareGroupOffsetsRequest(groups=[wanted])
        (group,) = (await cluster.ask(cluster.leader(OFFSETS), request, 1)).groups
        if group.error_code:
            return group, group.error_code
        (partition,) = group.topics[0].partitions
        return partition, partition.error_code

    found = await retried(attempt, *COME_BACK, ErrorCode.NETWORK_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE)
    offset: int = found.start_offset
    return offset


async def finish(members: list[Member]) -> None:
    """Work until the group has done with all messages."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + 90  # longer than a lock, in case that an acknowledgement gets no answer
    while await start_offset(members[0].cluster) < MESSAGES:
        assert loop.time() < give_up, [(each.accepted, each.refused, each.counts) for each in members]
        for each in members:
            await each.accept(await each.take())
    accepted = sum((each.accepted for each in members), Counter[int]())
    assert set(accepted.values()) == {1}
    assert {*range(MESSAGES)} - {*accepted} <= {offset for each in members for offset in each.refused}


async def hold(member: Member, deliveries: int = 1) -> list[Held]:
    """Take everything, as often as said; all but the last time it is released."""
    for n in range(deliveries):
        found = await eventually_taken(member)
        if n < deliveries - 1:
            code = await member.acknowledge(ack(0, MESSAGES - 1, RELEASE))
            assert code == ErrorCode.NONE
    return found


async def eventually_taken(member: Member) -> list[Held]:
    async with asyncio.timeout(60):
        while not (found := await member.take()):
            pass
    return found


def no_delivery_forgotten(members: list[Member], before: int) -> None:
    """Each delivery after the change has a higher count than those before it."""
    counts = [each.counts for each in members]
    after = [numbers for by_offset in counts for numbers in by_offset.values()]
    assert all(numbers == sorted(set(numbers)) for numbers in after)
    assert all(min(numbers) > before for numbers in counts[1].values())


@pytest.mark.parametrize("node", [LEADER, SHARE_COORDINATOR, GROUP_COORDINATOR])
@pytest.mark.parametrize("way", ["kill", "crash", "stop"])
async def test_every_message_is_accepted_once_though_a_broker_goes(
    tmp_path: Path, node: int, way: str
) -> None:
    async with working(tmp_path) as (cluster, members):
        found = await hold(members[0], deliveries=2)
        assert {each.deliveries for each in found} == {2}
        await members[0].accept(found[: MESSAGES // 2])
        assert sum(members[0].accepted.values()) == MESSAGES // 2
        if way == "stop":
            await cluster.stop(node)
        else:
            await (cluster.kill if way == "kill" else cluster.crash)(node)
            await cluster.bury(node)
        await members[0].accept(found[MESSAGES // 2 :])  # what it held at a dead leader is not its any more
        await finish(members)
        no_delivery_forgotten(members, 2)


async def test_a_group_that_begins_at_the_end_skips_nothing_that_was_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader dies right after the first delivery; the next one must not look for the end again."""
    may_write, is_writing = asyncio.Event(), asyncio.Event()
    write = ShareStateStore.write

    async def held_write(*args: Any, **named: Any) -> None:
        is_writing.set()
        await may_write.wait()
        await write(*args, **named)

    monkeypatch.setattr(ShareStateStore, "write", held_write)
    async with working(tmp_path, reset="latest") as (cluster, members):
        await eventually(lambda: cluster[LEADER].partitions.get(TOPIC, 0).high_watermark == MESSAGES)
        async with asyncio.timeout(20):
            while not is_writing.is_set():  # then it has found the end
                assert await members[0].take() == []
        await send(cluster, b"new")
        assert await members[0].take() == []
        may_write.set()
        assert (await eventually_taken(members[0]))[0].offset == MESSAGES
        await cluster.crash(LEADER)
        await cluster.bury(LEADER)
        await send(cluster, b"newer")
        assert (await eventually_taken(members[1]))[0].offset == MESSAGES


async def test_a_member_that_waits_while_the_lease_ends_gets_nothing(tmp_path: Path) -> None:
    """Another broker may lead by now, without this one's knowledge."""
    async with working(tmp_path) as (cluster, members):
        await hold(members[0])
        leader = cluster[LEADER]
        (share,) = leader.shares.shares
        waiting = ShareMember(None, GROUP, share.key.topic_id)  # type: ignore[arg-type]
        asking = asyncio.create_task(cluster.ask(LEADER, waiting.fetch_request(), 2))
        await eventually(lambda: share.waiters)
        lease, leader.lease.current = leader.lease.current, None
        try:
            leader.shares.shares.session_ended(SessionKey(GROUP, members[0].id))
            answer = parts(await asking)[0]
        finally:
            leader.lease.current = lease
        assert (answer.error_code, answer.acquired_records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        await finish(members)


async def test_a_delivery_that_waits_while_the_lease_ends_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is acquired and its write is done, but another broker may have given it to somebody by now."""
    may_write = asyncio.Event()
    may_write.set()
    results = StateWrites._results

    async def held_results(*args: Any) -> Any:
        found = await results(*args)
        await may_write.wait()
        return found

    monkeypatch.setattr(StateWrites, "_results", held_results)
    async with working(tmp_path) as (cluster, members):
        await hold(members[0])
        leader = cluster[LEADER]
        (share,) = leader.shares.shares
        leader.shares.shares.session_ended(SessionKey(GROUP, members[0].id))
        may_write.clear()
        waiting = ShareMember(None, GROUP, share.key.topic_id)  # type: ignore[arg-type]
        asking = asyncio.create_task(cluster.ask(LEADER, waiting.fetch_request(), 2))
        await eventually(lambda: share.machine is not None and share.machine.holds(waiting.member))
        lease, leader.lease.current = leader.lease.current, None
        try:
            may_write.set()
            answer = parts(await asking)[0]
        finally:
            leader.lease.current = lease
        assert (answer.error_code, answer.acquired_records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        assert share.machine is None or not share.machine.holds(waiting.member)
        await finish(members)


async def test_a_leader_that_hands_over_forgets_its_locks_and_not_its_counts(tmp_path: Path) -> None:
    async with working(tmp_path) as (cluster, members):
        await hold(members[0], deliveries=2)
        await cluster.lead(TOPIC, 0, GROUP_COORDINATOR)
        assert await members[0].acknowledge(ack(0)) != ErrorCode.NONE
        found = await eventually_taken(members[1])
        assert {each.deliveries for each in found} == {3}
        await members[1].accept(found)
        await finish(members)


async def test_leadership_that_moves_all_the_time(tmp_path: Path) -> None:
    """A member that opens its session anew does not know what it held: those locks have to run out."""
    async with working(tmp_path, lock_ms=1000) as (cluster, members):

        async def move() -> None:
            for turn in range(12):
                topic = (TOPIC, STATES, OFFSETS)[turn % 3]
                await cluster.lead(topic, 0, cluster.leader(topic) % 3 + 1)
                await asyncio.sleep(0.1)

        moving = asyncio.create_task(move())
        await asyncio.gather(*(piecewise(each) for each in members))
        await moving
        await finish(members)


async def piecewise(member: Member) -> None:
    """Accept a few, release a few, for a while."""
    for _ in range(15):
        found = await member.take(records=8, mode=1)
        await member.accept(found[::2])
        for each in found[1::2]:
            if each.deliveries < 3:
                await member.acknowledge(ack(each.offset, each.offset, RELEASE))
            else:
                await member.accept([each])
        await asyncio.sleep(0.05)


async def test_an_old_leader_cannot_acknowledge(tmp_path: Path) -> None:
    """It has not heard of its successor, so it takes the acknowledgement; the share coordinator does not."""
    async with working(tmp_path) as (cluster, members):
        old, new = members
        held_ = await hold(old)
        with cluster.uninformed(LEADER):
            await cluster.lead(TOPIC, 0, GROUP_COORDINATOR)
            taken = await eventually_taken(new)
            assert len(taken) == MESSAGES
            code = await old.acknowledge(ack(held_[0].offset), at=LEADER)
            assert code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD_STATE)
        await eventually(lambda: cluster.leader(TOPIC) == GROUP_COORDINATOR)
        await new.accept(taken)
        assert len(new.accepted) == MESSAGES
        await finish(members)


async def test_a_share_coordinator_that_is_away_for_a_while(tmp_path: Path) -> None:
    async with working(tmp_path) as (cluster, members):
        found = await hold(members[0])
        await cluster.kill(SHARE_COORDINATOR)
        acknowledging = asyncio.create_task(members[0].acknowledge(ack(0)))
        await asyncio.sleep(0.3)
        assert not acknowledging.done()
        await cluster.bury(SHARE_COORDINATOR)
        assert await acknowledging == ErrorCode.NONE
        members[0].accepted[0] += 1
        await members[0].accept(found[1:])
        await eventually(lambda: cluster.leader(STATES) in cluster.nodes)
        await finish(members)
