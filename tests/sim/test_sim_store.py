"""The simulated store answers late, not at all, or when nobody waits any more, as a real one does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.coordination.metadata import Metadata
from forebay.coordination.permanent_values import ensure_cluster_id
from forebay.coordination.store import Compare, LeaseLost, Put, StoreError
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.stored.image_text import encode_topic
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.store import KEYS, STORE_HOST, SimStore
from forebay.sim.world.store_client import StoreClient
from forebay.sim.world.virtual_time import World
from support.sim.processes import finish, process_on


@pytest.fixture
def store(world: World, network: SimNetwork) -> SimStore:
    return SimStore(world, network)


def test_a_lease_ends_when_its_holder_is_not_heard_of(
    world: World, network: SimNetwork, store: SimStore
) -> None:
    process = process_on(world, network, "a")
    client = StoreClient(store, process.loop, "a")

    async def hold() -> float:
        lease = await client.lease(6.0)
        await client.txn(puts=[Put(key="/k", value=b"v", lease=lease.id)])
        await asyncio.sleep(20.0)
        assert lease.valid()
        network.cut("a", STORE_HOST)
        cut_at = world.now
        await lease.lost.wait()
        assert not lease.valid()
        return world.now - cut_at

    assert 3.0 < finish(world, process, hold) <= 8.0
    world.run_until(world.now + 6.0)
    assert store.keyspace.get("/k") is None


def test_a_holder_stops_to_trust_its_lease_before_the_store_ends_it(
    world: World, network: SimNetwork, store: SimStore
) -> None:
    process = process_on(world, network, "a")
    client = StoreClient(store, process.loop, "a")
    leases: list[Any] = []

    async def take() -> None:
        lease = await client.lease(6.0)
        await client.txn(puts=[Put(key="/k", value=b"v", lease=lease.id)])
        leases.append(lease)

    finish(world, process, take)
    network.cut("a", STORE_HOST)
    world.run_until(world.now + 60.0, lambda: store.keyspace.get("/k") is None)
    assert store.keyspace.get("/k") is None
    assert not leases[0].valid()


def test_an_unanswered_transaction_may_have_been_carried_out(
    world: World, network: SimNetwork, store: SimStore
) -> None:
    process = process_on(world, network, "a")
    client = StoreClient(store, process.loop, "a")
    network.cut(STORE_HOST, "a")

    async def write() -> str:
        with pytest.raises(StoreError):
            await client.txn([Compare.absent("/k")], [Put(key="/k", value=b"v")])
        return "done"

    finish(world, process, write)
    assert store.keyspace.get("/k") is not None


def test_watches_come_late_in_order_and_complete(world: World, network: SimNetwork, store: SimStore) -> None:
    process = process_on(world, network, "a")
    client = StoreClient(store, process.loop, "a")
    store.watch_delay_s_max = 1.0

    async def follow() -> list[bytes]:
        seen: list[bytes] = []
        async for events, _ in client.watch("/", 1):
            seen += [event.kv.value for event in events]
            if len(seen) == 20:
                break
        return seen

    async def write(client: StoreClient) -> None:
        for number in range(20):
            await client.txn(puts=[Put(key="/k", value=b"%d" % number)])

    process.spawn(lambda: write(client))
    assert finish(world, process, follow) == [b"%d" % number for number in range(20)]


def test_a_watch_that_broke_off_with_news_on_its_way_goes_on(
    world: World, network: SimNetwork, store: SimStore
) -> None:
    process = process_on(world, network, "a")
    client = StoreClient(store, process.loop, "a")
    seen: list[bytes] = []

    async def follow() -> None:
        async for events, _ in client.watch("/", 1):
            seen.extend(event.kv.value for event in events)

    async def write(value: bytes) -> None:
        await client.txn(puts=[Put(key="/k", value=value)])

    process.spawn(follow)
    finish(world, process, lambda: write(b"1"))
    world.run_until(world.now + 1.0, lambda: bool(seen))
    store.txn([], [Put(key="/k", value=b"2")], [], "b")  # its push is on its way
    store.be_itself()  # the watch breaks off
    store.slow = True  # so the push comes before the watch goes on
    world.run_until(world.now + 10.0)
    store.slow = False
    finish(world, process, lambda: write(b"3"))
    world.run_until(world.now + 1.0)
    assert seen == [b"1", b"2", b"3"]


def test_leases_outlive_an_outage_of_the_store(world: World, network: SimNetwork, store: SimStore) -> None:
    process = process_on(world, network, "a")
    client = StoreClient(store, process.loop, "a")

    async def hold() -> bool:
        lease = await client.lease(6.0)
        store.down = True
        world.after(3.0, store.come_back)
        await asyncio.sleep(8.0)
        return lease.valid()

    assert finish(world, process, hold)


def test_a_lease_that_has_ended_takes_no_keys(world: World, network: SimNetwork, store: SimStore) -> None:
    process = process_on(world, network, "a")
    client = StoreClient(store, process.loop, "a")

    async def hold() -> str:
        lease = await client.lease(6.0)
        await lease.revoke()
        with pytest.raises(LeaseLost):
            await client.txn(puts=[Put(key="/k", value=b"v", lease=lease.id)])
        return "done"

    assert finish(world, process, hold) == "done"


def test_a_holder_doubts_its_lease_and_hears_that_it_has_it(
    world: World, network: SimNetwork, store: SimStore
) -> None:
    process = process_on(world, network, "broker")
    client = StoreClient(store, process.loop, "broker")
    lease = finish(world, process, lambda: client.lease(8.0))
    assert store.doubts_since("broker") is None
    store.hold_back("broker", doubt_in_s=0.5)
    asked_at = world.now
    assert lease.valid()
    world.run_until(asked_at + 1.0)
    assert not lease.valid()
    assert not lease.lost.is_set()
    assert store.doubts_since("broker") == pytest.approx(asked_at + 0.5)
    store.let_through("broker")
    assert lease.valid()
    assert store.doubts_since("broker") is None


def test_a_holder_that_hears_nothing_for_too_long_gives_its_lease_up(
    world: World, network: SimNetwork, store: SimStore
) -> None:
    process = process_on(world, network, "broker")
    client = StoreClient(store, process.loop, "broker")
    lease = finish(world, process, lambda: client.lease(8.0))
    store.hold_back("broker", doubt_in_s=0.5)
    world.run_until(world.now + 4.0)
    store.let_through("broker")
    assert lease.lost.is_set()
    assert not lease.valid()


def test_a_lease_that_is_lost_is_doubted_from_then_on(
    world: World, network: SimNetwork, store: SimStore
) -> None:
    process = process_on(world, network, "broker")
    client = StoreClient(store, process.loop, "broker")
    lease = finish(world, process, lambda: client.lease(8.0))
    network.cut("broker", STORE_HOST)
    world.run_until(world.now + 20.0)
    assert lease.lost.is_set()
    since = store.doubts_since("broker")
    assert since is not None
    assert since < world.now - 8.0


def test_models_are_told_of_values_that_cannot_be_read_as_they_were(store: SimStore) -> None:
    told: list[bytes] = []
    store.txn([], [Put(key="/k", value=b"v")], [], "a")
    store.on_events = lambda events: told.extend(event.kv.value for event in events)

    store.garble("/k", b"{}")
    assert store.keyspace.range("/k")[0][0].value == b"{}"
    store.repair("/k", put_back=True)

    assert told == [b"v", b"v"]


def test_the_store_is_believed_again_after_others_have_written_to_an_older_state_of_it(
    world: World, network: SimNetwork, store: SimStore
) -> None:
    process = process_on(world, network, "a")
    client = StoreClient(store, process.loop, "a")

    async def follow() -> bool:
        await ensure_cluster_id(client, KEYS, "c")
        backup = store.own.copy()
        await client.txn(puts=[topic("ours")])
        metadata = await Metadata.open(client, KEYS)
        following = asyncio.create_task(metadata.follow())
        await client.txn(puts=[topic("ours, too")])
        await metadata.wait_for(store.keyspace.revision)
        store.answer_as(backup)
        for put in (topic("another"), *(Put(key=f"/others/{number}", value=b"") for number in range(9))):
            backup.keyspace.apply(backup.keyspace.plan((), [put], ()) or ())
        await client.get("/")  # before the contents are looked at
        async with asyncio.timeout(60):
            while metadata.refused is None:  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(0.1)
            store.be_itself()
            while metadata.refused is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        following.cancel()
        return not metadata.behind and "ours" in metadata.image.topics

    assert finish(world, process, follow)


def topic(name: str) -> Put:
    record = TopicRecord(name=name, topic_id=name.encode().ljust(16), assignment=((1,),))
    return Put(key=KEYS.topic(name), value=encode_topic(record))
