"""No producer id is given out twice, whichever state of the store answers meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from forebay.broker.coordinators.producer_ids import BLOCK, ProducerIds
from forebay.broker.worker_threads import WorkerThreads
from forebay.coordination.metadata import Metadata
from forebay.coordination.permanent_values import ensure_cluster_id
from forebay.coordination.store import Delete, Put
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.stored.image_text import encode_topic
from forebay.errors import ErrorCode, KafkaError
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.store import KEYS, STORE_HOST, SimStore
from forebay.sim.world.store_client import StoreClient
from forebay.sim.world.store_contents import Contents
from forebay.sim.world.virtual_time import World
from forebay.storage.datadir import DataDir
from forebay.storage.real_disk import RealDisk
from support.sim.processes import finish, process_on

T = TypeVar("T")


class Giver:
    """The part of a broker that gives out producer ids, in a process of its own."""

    def __init__(self, world: World, network: SimNetwork, store: SimStore, host: str, path: Path) -> None:
        self._world = world
        self._process = process_on(world, network, host)
        self._client = StoreClient(store, self._process.loop, host)
        self._data = DataDir.open(RealDisk(), str(path / host), self._process.entropy)
        self.metadata: Metadata
        self._ids: ProducerIds
        self.run(self._begin)

    def run(self, make: Callable[[], Awaitable[T]]) -> T:
        return finish(self._world, self._process, make)

    async def _begin(self) -> None:
        await ensure_cluster_id(self._client, KEYS, "cluster")
        self.metadata = await Metadata.open(self._client, KEYS)
        self._process.spawn(self.metadata.follow)
        workers = WorkerThreads(self._process.loop, self._process.threads(1, "disk"))
        self._ids = ProducerIds(self._client, self.metadata, self._data, workers)

    def next(self) -> int:
        return self.run(self._ids.next)

    def is_refused(self) -> bool:
        """With the error that clients try again after."""

        async def ask() -> bool:
            with pytest.raises(KafkaError) as refused:
                await self._ids.next()
            return refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        return self.run(ask)

    def make_topic(self, name: str) -> None:
        record = TopicRecord(name=name, topic_id=name.encode().ljust(16), assignment=((1,),))
        put = Put(key=KEYS.topic(name), value=encode_topic(record))

        async def write() -> None:
            await self.metadata.wait_for((await self._client.txn(puts=[put])).revision)

        self.run(write)

    def remove(self, key: str) -> None:
        self.run(lambda: self._client.txn(deletes=[Delete(key=key)]))

    def catch_up(self) -> None:
        self.run(self.metadata.catch_up)

    def see(self, revision: int) -> None:
        self.run(lambda: self.metadata.wait_for(revision))


@pytest.fixture
def store(world: World, network: SimNetwork) -> SimStore:
    return SimStore(world, network)


@pytest.fixture
def givers(world: World, network: SimNetwork, store: SimStore, tmp_path: Path) -> tuple[Giver, Giver]:
    first, second = (Giver(world, network, store, host, tmp_path) for host in ("a", "b"))
    return first, second


def write_as_others(contents: Contents, count: int) -> None:
    """Others use the same etcd, so that its revision tells nothing any more."""
    for number in range(count):
        events = contents.keyspace.plan((), [Put(key=f"/others/{number}", value=b"")], ())
        contents.keyspace.apply(events or ())


def go_back(world: World, store: SimStore, backup: Contents) -> None:
    """Every broker sees first that the revision is lower, and then that it is not any more."""
    store.answer_as(backup)
    world.run_until(world.now + 2.0)
    write_as_others(backup, 50)
    world.run_until(world.now + 10.0)


def test_brokers_take_blocks_of_their_own(givers: tuple[Giver, Giver]) -> None:
    first, second = givers
    assert [first.next(), second.next(), first.next(), second.next()] == [0, BLOCK, 1, BLOCK + 1]


def test_an_older_state_of_the_store_that_others_write_to_gives_no_producer_ids(
    world: World, store: SimStore, givers: tuple[Giver, Giver]
) -> None:
    first, second = givers
    backup = store.backup()
    first.make_topic("since")
    second.see(first.metadata.image.revision)
    go_back(world, store, backup)
    assert first.is_refused()
    store.be_itself()
    world.run_until(world.now + 10.0)
    assert sorted([first.next(), second.next()]) == [0, BLOCK]


def test_an_older_state_that_lacks_only_a_block_of_ids_gives_no_producer_ids(
    world: World, store: SimStore, givers: tuple[Giver, Giver]
) -> None:
    first, second = givers
    assert first.next() == 0
    backup = store.backup()
    assert second.next() == BLOCK
    first.see(store.own.keyspace.revision)
    for _ in range(BLOCK - 1):
        first.next()
    go_back(world, store, backup)
    assert first.is_refused()
    store.be_itself()
    world.run_until(world.now + 10.0)
    assert first.next() == 2 * BLOCK


def test_a_state_of_the_store_from_before_the_first_block_gives_no_producer_ids(
    world: World, store: SimStore, givers: tuple[Giver, Giver]
) -> None:
    first, second = givers
    backup = store.backup()
    assert first.next() == 0
    second.see(store.own.keyspace.revision)
    go_back(world, store, backup)
    assert second.is_refused()
    store.be_itself()
    world.run_until(world.now + 10.0)
    assert second.next() == BLOCK


def test_a_counter_that_a_person_deletes_does_not_make_brokers_refuse_the_store(
    store: SimStore, givers: tuple[Giver, Giver]
) -> None:
    first, second = givers
    assert first.next() == 0
    second.remove(KEYS.producer_ids)
    first.see(store.own.keyspace.revision)
    first.catch_up()
    assert first.next() == 1


def test_a_block_of_a_state_that_answers_for_a_moment_only_is_given_up(
    world: World, network: SimNetwork, store: SimStore, givers: tuple[Giver, Giver]
) -> None:
    """The image does not get to know that state: the broker looks again when the store is itself again."""
    first, second = givers
    backup = store.backup()
    first.make_topic("since")
    second.see(first.metadata.image.revision)
    for host in ("a", "b"):
        network.cut(host, STORE_HOST)
    store.answer_as(backup)
    write_as_others(backup, 50)
    world.run_until(world.now + 20.0)
    assert first.metadata.behind, "and looks now and then whether the store answers"

    def be_itself_soon() -> None:
        if backup.keyspace.get(KEYS.producer_ids) is None:
            world.after(0.0001, be_itself_soon)
        else:
            write_as_others(store.own, 100)
            world.after(0.01, store.be_itself)

    network.mend("a", STORE_HOST)
    be_itself_soon()
    given = first.next()
    assert backup.keyspace.get(KEYS.producer_ids) is not None, "it gave a block"
    assert first.metadata.refused is None, "nobody has noticed"
    network.mend("b", STORE_HOST)
    world.run_until(world.now + 10.0)
    assert given != second.next()
