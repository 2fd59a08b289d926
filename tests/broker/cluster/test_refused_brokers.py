"""Brokers that refuse connections: counted as dead before their leases end, and back as soon as they can.

Leases do not end by themselves here: one that ends was given up, or was ended by a verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from forebay.coordination.store import Compare, Delete, Put, Store, StoreError, TxnResult
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.replicas.failover_times import Failover
from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, fetch, only_partition, produce, values_of

PRODUCE, FETCH, CREATE_TOPICS = 9, 12, 7
ACKS_ALL, ACKS_LEADER = -1, 1
TOPIC = "t"
VERDICTS = "forebay.failover.verdicts.per.minute"


async def make_topic(cluster: LocalCluster) -> None:
    (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)
    await cluster.in_sync(TOPIC)


async def wrote(cluster: LocalCluster, node: int, value: bytes, acks: int = ACKS_ALL) -> int:
    answer = await cluster.ask(node, produce(TOPIC, batch(value), acks=acks), PRODUCE)
    return int(only_partition(answer).error_code)


async def kill(cluster: LocalCluster, victim: int) -> None:
    """Kill a broker that all others watch."""
    others = [node for node in cluster.nodes if node != victim]
    await eventually(lambda: all(victim in cluster[node].failover.watch.watched for node in others))
    await cluster.kill(victim)


async def wait_for_another_leader(cluster: LocalCluster, than: int) -> int:
    await eventually(lambda: cluster.leader(TOPIC) not in (than, NO_LEADER))
    return cluster.leader(TOPIC)


def controller(cluster: LocalCluster) -> int:
    return next((node for node in cluster.nodes if cluster[node].controller.active), 0)


def failovers(cluster: LocalCluster) -> int:
    return sum(cluster[node].metrics.failovers for node in cluster.nodes)


async def kept(cluster: LocalCluster) -> list[Failover]:
    """What `forebay cluster describe` shows, once there is something."""
    async with asyncio.timeout(60):
        while True:
            found = await cluster[cluster.nodes[0]].failover.times.last()
            if found:
                return found
            await asyncio.sleep(0.02)


async def wait_for_a_refusal(caplog: pytest.LogCaptureFixture, reason: str) -> None:
    """Until a broker has told why the lease of another has to end first."""
    await eventually(lambda: any(reason in str(getattr(each, "reason", "")) for each in caplog.records))


async def test_another_leads_before_the_lease_of_a_killed_broker_ends(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, {VERDICTS: "3"}) as cluster:
        await make_topic(cluster)
        victim = cluster.leader(TOPIC)
        assert await wrote(cluster, victim, b"a") == ErrorCode.NONE
        await kill(cluster, victim)
        heir = await wait_for_another_leader(cluster, victim)
        assert failovers(cluster) == 1
        await eventually(lambda: cluster[heir].partitions.held(TOPIC, 0).high_watermark == 1)
        fetched = await cluster.ask(heir, fetch(TOPIC), FETCH)
        assert values_of(only_partition(fetched).records) == [(0, b"a")]
        (failover,) = await kept(cluster)
        assert (failover.broker, failover.partitions) == (victim, 1)


async def test_another_is_the_controller_before_the_lease_of_a_killed_one_ends(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, {VERDICTS: "3"}) as cluster:
        victim = await eventually(lambda: controller(cluster))
        await kill(cluster, victim)
        await eventually(lambda: controller(cluster))
        (failover,) = await kept(cluster)
        assert failover.broker == victim


async def test_a_verdict_ends_the_lease_as_soon_as_the_store_lets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_cluster(tmp_path, {VERDICTS: "3"}) as cluster:
        victim = cluster.nodes[-1]
        lease, failures = cluster[victim].lease.current, iter([StoreError("no answer")] * 2)
        assert lease is not None
        for judge in cluster.nodes[:-1]:
            monkeypatch.setattr(cluster.session(judge), "revoke", failing(cluster.session(judge), failures))
        await kill(cluster, victim)
        await eventually(lambda: not lease.valid())
        assert next(failures, None) is None
        assert failovers(cluster) == 1


def failing(store: Store, failures: Iterator[StoreError]) -> Callable[[int], Awaitable[None]]:
    """Ending leases fails for as long as there are failures left."""
    revoke = store.revoke

    async def fail_first(lease_id: int) -> None:
        for failure in failures:
            raise failure
        await revoke(lease_id)

    return fail_first


async def test_a_broker_that_registers_anew_while_it_is_judged_keeps_its_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_cluster(tmp_path, {VERDICTS: "3"}) as cluster:
        victim, *judges = reversed(cluster.nodes)
        verdicts: list[TxnResult] = []
        for judge in judges:
            session, key = cluster.session(judge), cluster[judge].metadata.keys.broker(victim)
            monkeypatch.setattr(session, "txn", registering_anew(session, key, verdicts))
        await kill(cluster, victim)
        await eventually(lambda: verdicts)
        assert not verdicts[0].ok


def registering_anew(
    store: Store, key: str, verdicts: list[TxnResult]
) -> Callable[..., Awaitable[TxnResult]]:
    """Before the registration is ended, another one takes its place."""
    txn = store.txn

    async def renew_first(
        compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        if not any(each.key == key for each in deletes):
            return await txn(compares, puts, deletes)
        registered = await store.get(key)
        assert registered is not None
        await txn(deletes=[Delete(key=key)])
        await txn(puts=[Put(key=key, value=registered.value)])
        verdicts.append(await txn(compares, puts, deletes))
        return verdicts[-1]

    return renew_first


async def test_a_controller_that_is_restarted_does_not_wait_for_its_old_lease(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        victim = await eventually(lambda: controller(cluster))
        await cluster.kill(victim)
        await cluster.start(victim, at_once=True)
        await eventually(lambda: controller(cluster))


async def test_beyond_the_bound_the_lease_decides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with local_cluster(tmp_path, {VERDICTS: "1"}) as cluster:
        await make_topic(cluster)
        victim = cluster.leader(TOPIC)
        await kill(cluster, victim)
        await wait_for_another_leader(cluster, victim)
        await cluster.start(victim, at_once=True)
        await cluster.in_sync(TOPIC)
        await kill(cluster, victim)
        await wait_for_a_refusal(caplog, "several times in the last minute")
        assert failovers(cluster) == 1
        assert victim in cluster.state(TOPIC).isr
        await cluster.bury(victim)
        assert victim not in cluster.state(TOPIC).isr


async def test_a_partition_that_nobody_else_can_lead_keeps_its_leader_for_the_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {VERDICTS: "3", "default.replication.factor": "1"}
    async with local_cluster(tmp_path, settings) as cluster:
        await make_topic(cluster)
        victim = cluster.leader(TOPIC)
        await kill(cluster, victim)
        await wait_for_a_refusal(caplog, f"no other broker can lead {TOPIC}-0")
        assert failovers(cluster) == 0
        assert cluster.leader(TOPIC) == victim


async def test_a_broker_that_was_counted_as_dead_by_mistake_leads_nothing_and_comes_back(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster)
        victim = cluster.leader(TOPIC)
        assert await wrote(cluster, victim, b"a") == ErrorCode.NONE
        lease, epoch = cluster[victim].lease, cluster[victim].lease.epoch
        with cluster.unwritable(victim):  # it cannot register again yet
            await cluster.end_registration(victim)
            await eventually(lambda: not lease.valid())
            assert await wrote(cluster, victim, b"refused", ACKS_LEADER) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            other = next(node for node in cluster.nodes if node != victim)
            heir = await eventually(
                lambda: (
                    leader
                    if (state := cluster[other].image.partition(TOPIC, 0))
                    and (leader := state.leader) != victim
                    else None
                )
            )
            assert await wrote(cluster, heir, b"b") == ErrorCode.NONE
        await eventually(lambda: lease.valid() and lease.epoch > epoch)
        await cluster.in_sync(TOPIC)
        assert await wrote(cluster, cluster.leader(TOPIC), b"c") == ErrorCode.NONE
        leader = cluster.leader(TOPIC)
        fetched = await cluster.ask(leader, fetch(TOPIC), FETCH)
        values = [value for _, value in values_of(only_partition(fetched).records)]
        # What was refused may have been copied by followers that did not know the new leader yet.
        assert [value for value in values if value != b"refused"] == [b"a", b"b", b"c"]
        ends = [cluster[node].partitions.held(TOPIC, 0).log for node in (leader, victim)]
        await eventually(lambda: ends[0].end_offset == ends[1].end_offset)
        assert cluster[victim].metrics.leases_lost == 1
