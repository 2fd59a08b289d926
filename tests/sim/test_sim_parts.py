"""The simulated world by its parts: time, processes, network, disk and store behave as the real ones do."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from forebay.broker.appends import Appends
from forebay.broker.sockets import Stream
from forebay.coordination.store import Compare, LeaseLost, Put, StoreError
from forebay.sim.simulation import Story, simulate
from forebay.sim.world.disk import Died, DiskHandle, SimDisk
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.node import SimProcess
from forebay.sim.world.store import STORE_HOST, SimStore, StoreClient
from forebay.sim.world.virtual_time import World
from forebay.storage.disk import File, FileClosed, Locked

T = TypeVar("T")


@pytest.fixture
def world() -> World:
    return World(7)


@pytest.fixture
def network(world: World) -> SimNetwork:
    return SimNetwork(world)


def process_on(world: World, network: SimNetwork, host: str) -> SimProcess:
    process = SimProcess(world, network, host, host)

    def fail(message: str, error: BaseException | None) -> None:
        world.fail(f"{host}: {message}: {error!r}")

    process.loop.on_failure = fail
    return process


def finish(world: World, process: SimProcess, make: Callable[[], Awaitable[T]], seconds: float = 60.0) -> T:
    """What a coroutine of a process returns, within so much virtual time."""
    results: list[T] = []

    async def run() -> None:
        results.append(await make())

    process.spawn(run)
    world.run_until(world.now + seconds, lambda: bool(results))
    assert world.breach is None, world.breach
    assert results, "it did not finish"
    return results[0]


# -- processes ---------------------------------------------------------------------------------------------


def test_time_passes_only_in_the_world(world: World, network: SimNetwork) -> None:
    process = process_on(world, network, "a")

    async def sleep() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert finish(world, process, sleep, 4000) == pytest.approx(3600, abs=0.1)


def test_a_paused_process_runs_late_and_misses_nothing(world: World, network: SimNetwork) -> None:
    process = process_on(world, network, "a")
    ticks: list[float] = []

    async def tick() -> None:
        for _ in range(5):
            await asyncio.sleep(1.0)
            ticks.append(world.now)

    process.spawn(tick)
    world.run_until(2.5)
    process.loop.pause()
    world.run_until(10.0)
    assert len(ticks) == 2
    process.loop.resume()
    world.run_until(20.0)
    assert len(ticks) == 5
    assert ticks[2] >= 10.0


def test_a_killed_process_does_nothing_more_not_even_cleaning_up(world: World, network: SimNetwork) -> None:
    process = process_on(world, network, "a")
    disk = SimDisk(random.Random(1))
    handle = DiskHandle(disk, random.Random(1))
    handle.mkdirs("/data")

    async def hold() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.sleep(100))
                await asyncio.sleep(100)
        finally:
            handle.write_atomic("/data/last-words", b"!")

    process.spawn(hold)
    world.run_until(1.0)
    handle.die()
    process.end()
    world.run_until(200.0)
    assert not disk.names.get("/data/last-words")
    assert world.breach is None


def test_threads_take_effect_before_they_report(world: World, network: SimNetwork) -> None:
    process = process_on(world, network, "a")
    pool = process.threads(1, "pool")
    done: list[float] = []

    async def work() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(pool, lambda: done.append(world.now))
        return done[0], world.now

    effect, report = finish(world, process, work)
    assert 0 < effect < report


def test_a_failed_callback_is_a_breach(world: World, network: SimNetwork) -> None:
    process = process_on(world, network, "a")
    process.loop.call_soon(lambda: 1 // 0)
    world.run_until(1.0)
    assert "ZeroDivisionError" in str(world.breach)


# -- network -----------------------------------------------------------------------------------------------


class Echo:
    """Sends back what it receives."""

    def __init__(self, process: SimProcess, host: str) -> None:
        self.streams: list[Stream] = []
        self.listener = process.network.listen(host, 1, self._accept)
        self.listener.start()

    def _accept(self, stream: Stream) -> None:
        self.streams.append(stream)
        stream.on_readable(lambda: self._echo(stream))

    def _echo(self, stream: Stream) -> None:
        buffer = memoryview(bytearray(65536))
        try:
            size = stream.recv_into(buffer)
        except OSError:
            stream.on_readable(None)
            return
        if size:
            stream.send(buffer[:size])
        else:
            stream.close()


async def receive(process: SimProcess, stream: Stream, size: int) -> bytes:
    found = bytearray()
    buffer = memoryview(bytearray(65536))
    while len(found) < size:
        try:
            got = stream.recv_into(buffer)
            if not got:
                break
            found += buffer[:got]
        except BlockingIOError:
            await asyncio.sleep(0.001)
    return bytes(found)


def test_bytes_arrive_in_order_whatever_their_delays(world: World, network: SimNetwork) -> None:
    server, client = process_on(world, network, "server"), process_on(world, network, "client")
    Echo(server, "server")
    sent = b"".join(b"%04d" % number for number in range(500))

    async def talk() -> bytes:
        stream = await client.network.connect("server", 1)
        for position in range(0, len(sent), 40):
            stream.send(sent[position : position + 40])
        return await receive(client, stream, len(sent))

    assert finish(world, client, talk) == sent


def test_a_cut_holds_bytes_back_until_it_is_mended(world: World, network: SimNetwork) -> None:
    server, client = process_on(world, network, "server"), process_on(world, network, "client")
    Echo(server, "server")

    async def talk() -> tuple[bytes, float]:
        stream = await client.network.connect("server", 1)
        network.cut("server", "client")  # what is asked arrives, and its answer does not
        world.after(5.0, network.mend, "server", "client")
        stream.send(b"hello")
        return await receive(client, stream, 5), world.now

    answer, when = finish(world, client, talk)
    assert answer == b"hello"
    assert when > 5.0


def test_connections_of_a_killed_process_are_reset(world: World, network: SimNetwork) -> None:
    server, client = process_on(world, network, "server"), process_on(world, network, "client")
    Echo(server, "server")

    async def talk() -> str:
        stream = await client.network.connect("server", 1)
        server.end()
        with pytest.raises(ConnectionResetError):
            await receive(client, stream, 1)
        with pytest.raises(ConnectionRefusedError):
            await client.network.connect("server", 1)
        return "done"

    assert finish(world, client, talk) == "done"


def test_a_host_without_power_is_silent_until_it_is_back(world: World, network: SimNetwork) -> None:
    server, client = process_on(world, network, "server"), process_on(world, network, "client")
    Echo(server, "server")

    async def talk() -> float:
        stream = await client.network.connect("server", 1)
        network.power_lost("server")
        server.end()
        stream.send(b"anybody there?")
        world.after(9.0, network.power_back, "server")
        with pytest.raises(ConnectionResetError):
            await receive(client, stream, 1)
        return world.now

    assert finish(world, client, talk) > 9.0


def test_nobody_answers_at_the_other_side_of_a_cut(world: World, network: SimNetwork) -> None:
    client = process_on(world, network, "client")
    network.cut("client", "server")

    async def talk() -> int | None:
        with pytest.raises(OSError) as failure:
            await client.network.connect("server", 1)
        return failure.value.errno

    assert finish(world, client, talk) == errno.ETIMEDOUT


def test_a_reader_that_stops_reading_stops_the_writer(world: World, network: SimNetwork) -> None:
    server, client = process_on(world, network, "server"), process_on(world, network, "client")
    accepted: list[Stream] = []
    server.network.listen("server", 1, accepted.append).start()

    async def talk() -> int:
        stream = await client.network.connect("server", 1)
        sent = 0
        with pytest.raises(BlockingIOError):
            while sent < 10_000_000:
                sent += stream.send(bytes(65536))
        writable: list[float] = []
        stream.on_writable(lambda: (writable.append(world.now), stream.on_writable(None))[0])  # type: ignore[func-returns-value]
        await asyncio.sleep(1.0)
        assert not writable
        await receive(server, accepted[0], 65536)
        await asyncio.sleep(1.0)
        assert writable
        return sent

    assert finish(world, client, talk) < 10_000_000


# -- disk --------------------------------------------------------------------------------------------------


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(3))


def handle_of(disk: SimDisk) -> DiskHandle:
    return DiskHandle(disk, random.Random(3))


def with_synced_log(seed: int, content: bytes) -> tuple[SimDisk, DiskHandle, File]:
    """A disk that has this in /data/log for good."""
    disk = SimDisk(random.Random(seed))
    handle = handle_of(disk)
    handle.mkdirs("/data")
    file = handle.open("/data/log", create=True)
    file.appendv([content])
    file.datasync()
    handle.fsync_dir("/data")
    return disk, handle, file


def test_a_kill_loses_nothing_and_frees_the_lock(disk: SimDisk) -> None:
    first = handle_of(disk)
    first.mkdirs("/data")
    first.lock("/data/.lock", "1")
    file = first.open("/data/log", create=True)
    file.appendv([b"one", b"two"])
    first.die()
    with pytest.raises(Died):
        file.appendv([b"three"])
    second = handle_of(disk)
    second.lock("/data/.lock", "2")
    assert second.read_bytes("/data/log") == b"onetwo"
    assert second.boot_id() == first.boot_id()
    with pytest.raises(Locked):
        handle_of(disk).lock("/data/.lock", "3")


def test_power_loss_keeps_what_was_synced_and_some_of_the_rest() -> None:
    left: set[int] = set()
    for seed in range(200):
        disk, handle, file = with_synced_log(seed, b"safe")
        file.appendv([b"unsafe"])
        boot = handle.boot_id()
        handle.die()
        disk.lose_power()
        after = handle_of(disk)
        content = after.read_bytes("/data/log")
        assert content.startswith(b"safe")
        assert len(content) <= 10
        assert after.boot_id() != boot
        left.add(len(content))
    assert left == set(range(4, 11))


def test_power_loss_may_take_names_that_were_not_synced() -> None:
    kept: set[tuple[str, ...]] = set()
    for seed in range(100):
        disk = SimDisk(random.Random(seed))
        handle = handle_of(disk)
        handle.mkdirs("/data")
        handle.fsync_dir("/data")
        handle.open("/data/a", create=True).datasync()
        handle.open("/data/b", create=True).datasync()
        handle.rename("/data/a", "/data/c")
        disk.lose_power()
        kept.add(tuple(handle_of(disk).list("/data")))
    assert kept == {(), ("a",), ("a", "b"), ("b", "c")}


def test_power_loss_may_bring_back_what_was_cut_off() -> None:
    seen: set[bytes] = set()
    for seed in range(50):
        disk, _handle, file = with_synced_log(seed, b"long ago")
        file.truncate(4)
        disk.lose_power()
        seen.add(handle_of(disk).read_bytes("/data/log"))
    assert seen == {b"long", b"long ago"}


def test_a_process_can_die_in_the_middle_of_its_changes(disk: SimDisk) -> None:
    handle = handle_of(disk)
    handle.mkdirs("/data")
    dead: list[bool] = []
    handle.on_death = lambda: dead.append(True)
    handle.lives = 1
    handle.write_atomic("/data/one", b"1")
    with pytest.raises(Died):
        handle.write_atomic("/data/two", b"2")
    assert dead == [True]
    assert handle_of(disk).list("/data") == ["one"]


def test_a_closed_file_stays_closed(disk: SimDisk) -> None:
    handle = handle_of(disk)
    handle.mkdirs("/data")
    file = handle.open("/data/log", create=True)
    file.close()
    with pytest.raises(FileClosed):
        file.appendv([b"x"])


# -- store -------------------------------------------------------------------------------------------------


@pytest.fixture
def store(world: World, network: SimNetwork) -> SimStore:
    return SimStore(world, network)


def test_a_lease_ends_when_its_holder_is_not_heard_of(
    world: World, network: SimNetwork, store: SimStore
) -> None:
    process = process_on(world, network, "a")
    client = store.client(process.loop, "a")

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
    client = store.client(process.loop, "a")
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
    client = store.client(process.loop, "a")
    network.cut(STORE_HOST, "a")

    async def write() -> str:
        with pytest.raises(StoreError):
            await client.txn([Compare.absent("/k")], [Put(key="/k", value=b"v")])
        return "done"

    finish(world, process, write)
    assert store.keyspace.get("/k") is not None


def test_watches_come_late_in_order_and_complete(world: World, network: SimNetwork, store: SimStore) -> None:
    process = process_on(world, network, "a")
    client = store.client(process.loop, "a")
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


def test_leases_outlive_an_outage_of_the_store(world: World, network: SimNetwork, store: SimStore) -> None:
    process = process_on(world, network, "a")
    client = store.client(process.loop, "a")

    async def hold() -> bool:
        lease = await client.lease(6.0)
        store.down = True
        world.after(3.0, store.come_back)
        await asyncio.sleep(8.0)
        return lease.valid()

    assert finish(world, process, hold)


def test_a_lease_that_has_ended_takes_no_keys(world: World, network: SimNetwork, store: SimStore) -> None:
    process = process_on(world, network, "a")
    client = store.client(process.loop, "a")

    async def hold() -> str:
        lease = await client.lease(6.0)
        await lease.revoke()
        with pytest.raises(LeaseLost):
            await client.txn(puts=[Put(key="/k", value=b"v", lease=lease.id)])
        return "done"

    assert finish(world, process, hold) == "done"


def test_a_mistake_that_a_broker_lives_through_is_a_breach_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(_: Appends) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(Appends, "expire", mistaken)
    ending = simulate(Story(seed=1, steps=0))
    assert ending.breach is not None
    assert "nobody expected" in ending.breach and "a mistake" in ending.breach
