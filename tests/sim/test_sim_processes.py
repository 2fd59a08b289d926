"""Simulated processes and the network between them behave as real ones do."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from forebay.broker.ports import Stream
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.sim.simulation import Story, simulate
from forebay.sim.world.disk_time import DiskTime
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import Died, DiskHandle
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.process import SimProcess
from forebay.sim.world.virtual_time import World
from support.machines.enough_cores import stranger_work
from support.sim.processes import finish, process_on


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


def test_a_loop_that_works_for_long_stands_still(world: World, network: SimNetwork) -> None:
    process = process_on(world, network, "host")
    stalls: list[float] = []
    process.loop.on_stall = stalls.append

    async def work() -> float:
        process.loop.spend(2.0)
        await asyncio.sleep(0.5)
        return world.now

    assert finish(world, process, work) > 2.0
    assert stalls == [2.0]


def test_a_thread_that_works_for_long_holds_up_nobody(world: World, network: SimNetwork) -> None:
    process = process_on(world, network, "host")
    stalls: list[float] = []
    process.loop.on_stall = stalls.append
    threads = process.threads(1, "work")

    async def work() -> float:
        done = process.loop.run_in_executor(threads, process.loop.spend, 2.0)
        await asyncio.sleep(0.5)
        assert world.now < 1.0
        await done
        return world.now

    assert finish(world, process, work) > 2.0
    assert not stalls


def test_going_through_a_file_on_the_loop_costs_what_a_large_file_would(
    world: World, network: SimNetwork
) -> None:
    process = process_on(world, network, "host")
    stalls: list[float] = []
    process.loop.on_stall = stalls.append
    handle = DiskHandle(SimDisk(random.Random(1)), random.Random(1), time=DiskTime(process.loop))
    handle.mkdirs("/data")

    async def work() -> None:
        file = handle.open("/data/log", create=True)
        file.appendv([bytes(100_000)])
        file.pread(8_000, 0)
        await asyncio.sleep(0)
        assert not stalls, "a few headers are free"
        for position in range(0, 100_000, 8_000):
            file.pread(8_000, position)
        await asyncio.sleep(0)
        assert stalls[-1] > 2.0

    finish(world, process, work)


def test_what_a_process_reads_before_it_serves_is_free(world: World, network: SimNetwork) -> None:
    process = process_on(world, network, "host")
    stalls: list[float] = []
    process.loop.on_stall = stalls.append
    serving: list[str] = []
    time = DiskTime(process.loop, serves=lambda: bool(serving))
    handle = DiskHandle(SimDisk(random.Random(1)), random.Random(1), time=time)
    handle.mkdirs("/data")

    async def work() -> None:
        file = handle.open("/data/log", create=True)
        file.appendv([bytes(100_000)])
        file.pread(100_000, 0)
        await asyncio.sleep(0)
        assert not stalls
        serving.append("now")
        file.pread(100_000, 0)
        await asyncio.sleep(0)
        assert stalls[-1] > 2.0

    finish(world, process, work)


# -- network -----------------------------------------------------------------------------------------------


class Echo:
    """Sends back what it receives."""

    def __init__(self, process: SimProcess, host: str) -> None:
        self.streams: list[Stream] = []
        self.listener = process.network.listen(host, 1, self._accept)
        self.listener.start(stranger_work(process.loop))

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
    server.network.listen("server", 1, accepted.append).start(stranger_work(server.loop))

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


def test_a_mistake_that_a_broker_lives_through_is_a_breach_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(_: WriteCycle) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(WriteCycle, "expire", mistaken)
    ending = simulate(Story(seed=1, steps=0))
    assert ending.breach is not None
    assert "nobody expected" in ending.breach and "a mistake" in ending.breach


def test_nobody_waits_for_threads_of_a_process_that_is_dead(world: World, network: SimNetwork) -> None:
    process = SimProcess(world, network, "host", "process")
    threads = process.threads(1, "pool")
    jobs = [threads.submit(int), threads.submit(int)]
    process.end()
    threads.shutdown()
    assert [type(job.exception(timeout=0)) for job in jobs] == [Died, Died]
