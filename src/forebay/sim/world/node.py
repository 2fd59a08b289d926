"""A simulated machine that runs a broker: its disk and its clock last, its processes come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random

from forebay.broker.broker import Broker
from forebay.broker.node import Node
from forebay.broker.partition.opening.opening_again import OpeningRefused
from forebay.broker.partition.partition import Partition
from forebay.broker.ports import Address, Ports
from forebay.config import BrokerConfig, broker_config
from forebay.coordination.store import Store
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.topic_partition import TopicPartition
from forebay.errors import KafkaError
from forebay.sim.world.clock import SimClock
from forebay.sim.world.disk_time import DiskTime
from forebay.sim.world.disks.delay_indexes import SimDelayIndexes
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import Died, DiskHandle
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.objects import COPYING_THREADS, SimObjects
from forebay.sim.world.process import SimProcess
from forebay.sim.world.store import SimStore
from forebay.sim.world.store_client import StoreClient
from forebay.sim.world.virtual_time import World
from forebay.storage.checkpoint import LOG_START_OFFSETS, read_offsets
from forebay.storage.strays import PARTITION_NAME

PORT = 9092
DATA_DIR = "/data"


class SimNode:
    def __init__(
        self,
        world: World,
        network: SimNetwork,
        store: SimStore,
        objects: SimObjects,
        node_id: int,
        settings: Mapping[str, str],
    ) -> None:
        self.node_id = node_id
        self.host = f"node{node_id}"
        self.address: Address = (self.host, PORT)
        self.disk = SimDisk(world.chance(f"disk/{self.host}"))
        self.delay_indexes = SimDelayIndexes()
        self.clock = SimClock(world, world.chance(f"clock/{self.host}").randint(-200, 200))
        self._broker: Broker | None = None
        self.ready = False
        self.starts = 0
        self.powerless = False
        self.gave_up = False
        """True if the broker ended by itself."""
        self.disk_failed = False
        """True if the disk has refused something since the broker was started."""
        self.stopping = False
        """True if it was asked to stop, and does not serve again yet."""
        self.kept_all = True
        """True if the disk holds everything that earlier processes had written."""
        self.noted_starts: dict[TopicPartition, int] = {}
        """The log start offsets that an earlier process had noted on the disk."""
        self.stall_s_max = 0.0
        """The maximum time that its loop may block."""
        self._burdens_s = 0.0
        """How long strangers' requests block it, from the end of this turn on."""
        self._burdened_until = 0.0
        self._world = world
        self._network = network
        self._store = store
        self._objects = objects
        self._settings = dict(settings)
        self._torn = False
        """True if power was lost, and not all logs have been checked since."""
        self._process: SimProcess | None = None
        self._handle: DiskHandle | None = None

    # -- life --------------------------------------------------------------------------------------------

    @property
    def broker(self) -> Node | None:
        """The parts of its broker, once that has opened them."""
        return None if self._broker is None else self._broker.node

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def paused(self) -> bool:
        return self._process is not None and self._process.loop.paused

    @property
    def burdened(self) -> bool:
        """True if strangers' requests block it at this moment."""
        return self._world.now < self._burdened_until

    @property
    def lacks_partitions(self) -> bool:
        """True if its broker serves without partitions that it could not open or truncate, and might now.

        What the system refused to open is no reason to start it again: it tries that by itself.
        """
        if self.broker is None or not self.ready or self.disk.fault is not None:
            return False
        partitions = self.broker.partitions
        refused = {key for key, error in partitions.broken.items() if isinstance(error, OpeningRefused)}
        damaged = partitions.damaged() - refused
        return bool(damaged) or any(each.log.offline_for_good for each in partitions.all())

    def partition(self, at: TopicPartition) -> Partition | None:
        """Its replica of a partition, if that may be used at this moment."""
        if self.broker is None or not self.ready:
            return None
        try:
            return self.broker.partitions.held(*at)
        except KafkaError:
            return None

    def sees(self, topic: str, state: PartitionState) -> bool:
        """True if its broker runs and knows this state of a partition."""
        if self.broker is None or not self.ready or self.paused:
            return False
        return self.broker.image.partition(topic, state.index) == state

    def live_on(self) -> None:
        """Take back that the process is to die in one of its next changes to the disk. If it has died at this
        very moment, it ends now."""
        if self._handle is None:
            return
        self._handle.lives = None
        if self._handle.dead:
            self.kill()

    def start(self) -> None:
        if self._process is not None or self.powerless:
            return
        self.gave_up = self.stopping = False
        self.starts += 1
        self.kept_all = not (self._torn or self.disk_failed or self.disk.rotten)
        self._world.note("node", f"{self.host} starts")
        name = f"{self.host}/{self.starts}"
        process = self._process = SimProcess(self._world, self._network, self.host, name)
        process.slow_s = self._slow_s
        process.loop.on_failure = self._failed
        process.loop.on_stall = self._stood_still
        handle = self._handle = DiskHandle(
            self.disk,
            self._world.chance(f"handle/{name}"),
            time=DiskTime(process.loop, serves=lambda: self.ready),
        )
        handle.on_death = partial(self._world.after, 0.0, self._die_of, process)
        config = broker_config(
            {
                "node.id": str(self.node_id),
                "log.dirs": DATA_DIR,
                "listeners": f"PLAINTEXT://{self.host}:{PORT}",
                "forebay.allow.insecure": "true",
                **self._settings,
            }
        )
        self.stall_s_max = config.cluster.lease_ttl_ms / 1000 / 4
        ports = Ports(
            clock=self.clock,
            disk=handle,
            network=process.network,
            executor=process.threads,
            entropy=process.entropy,
            delay_indexes=self.delay_indexes,
            open_store=lambda _: self._open_store(process),
            open_objects=lambda _: self._objects,
        )
        process.spawn(lambda: self._run(process, config, ports))

    def _slow_s(self, pool: str) -> float:
        copying_s = self._objects.slow_s() if pool == COPYING_THREADS else 0.0
        return max(self.disk.slow_s, copying_s)

    async def _open_store(self, process: SimProcess) -> Store:
        return StoreClient(self._store, process.loop, self.host)

    async def _run(self, process: SimProcess, config: BrokerConfig, ports: Ports) -> None:
        broker = self._broker = Broker(config, ports)
        try:
            await broker.run(self._on_ready)
            reason = "stopped"
        except asyncio.CancelledError:
            raise
        except Exception as error:
            reason = f"gave up: {_describe(error)}"
        self._world.after(0.0, self._exited, process, reason)

    def _on_ready(self, _address: Address) -> None:
        self.ready = True
        self._torn = self._torn and (self._has_unopened_logs() or self.disk.fault is not None)
        self._world.note("node", f"{self.host} is ready")

    def _has_unopened_logs(self) -> bool:
        """True if there are logs whose torn ends were not cut off: their partitions are broken, or the store
        does not say whose they are."""
        if self.broker is None:
            return False
        opened = {f"{DATA_DIR}/{partition}" for partition in self.broker.partitions.all()}
        found = (path for path in self.disk.directories(DATA_DIR) if PARTITION_NAME.fullmatch(path))
        return bool(self.broker.partitions.broken) or any(path not in opened for path in found)

    def _exited(self, process: SimProcess, reason: str) -> None:
        if self._process is process:
            self._world.note("node", f"{self.host} {reason}")
            self._end()
            self.gave_up = True

    def _failed(self, message: str, error: BaseException | None) -> None:
        if not isinstance(error, Died):
            self._world.fail(f"{self.host}: {message}: {error!r}")

    def _stood_still(self, seconds: float) -> None:
        """A serving broker's loop must not block for long by its own fault: others count it as dead."""
        seconds, self._burdens_s = seconds - self._burdens_s, 0.0
        if self.ready and not self.stopping and seconds > self.stall_s_max:
            self._world.fail(
                f"the loop of {self.host} stood still for {seconds:.1f} s, "
                f"where {self.stall_s_max:.1f} s are a quarter of its lease"
            )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._handle is not None:
            self._handle.die()
            self._store.end_watches(process.loop)
            process.end()
            self._note_starts()
        self._broker = None
        self.ready = False

    def _note_starts(self) -> None:
        fault, self.disk.fault = self.disk.fault, None
        disk = DiskHandle(self.disk, Random(0))
        noted = {**self.noted_starts, **read_offsets(disk, f"{DATA_DIR}/{LOG_START_OFFSETS}")}
        directories = self.disk.directories(DATA_DIR)
        self.noted_starts = {
            (topic, index): offset
            for (topic, index), offset in noted.items()
            if f"{DATA_DIR}/{topic}-{index}" in directories
        }
        self.disk.fault = fault

    # -- trouble -----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """SIGTERM."""
        if self._process is not None and self._broker is not None:
            self._world.note("node", f"{self.host} is told to stop")
            self.stopping = True
            self._process.loop.call_soon(self._broker.stop)

    def kill(self) -> None:
        """SIGKILL: the system keeps what the process gave it."""
        if self._process is not None:
            self._world.note("node", f"{self.host} is killed")
            self._end()

    def kill_after(self, changes: int) -> None:
        """SIGKILL in the middle of something: after this many changes to the disk."""
        if self._handle is not None and self._process is not None:
            self._handle.lives = changes

    def _die_of(self, process: SimProcess) -> None:
        if self._process is process:
            self.kill()

    def lose_power(self) -> None:
        self._world.note("node", f"{self.host} loses power")
        self._go_dark()
        self.disk.lose_power()
        self.delay_indexes.lose_power()

    def lose_disk(self) -> None:
        """The disk breaks, and an empty one takes its place."""
        self._world.note("node", f"{self.host} loses its disk")
        self._go_dark()
        self.disk.erase()
        self.delay_indexes.erase()

    def replace_disk(self) -> None:
        """An empty disk takes the place of this one, while nothing runs."""
        assert not self.running
        self.disk.erase()
        self.delay_indexes.erase()
        self.noted_starts.clear()

    def _go_dark(self) -> None:
        self.powerless = True
        self._network.power_lost(self.host)
        self._end()
        self._torn = True
        self.noted_starts.clear()

    def power_back(self) -> None:
        self.powerless = False
        self._network.power_back(self.host)
        self.start()

    def burden(self, seconds: float) -> None:
        """A stranger's request, which keeps the loop busy for this long."""
        if self._process is not None and self.ready:
            self._process.loop.call_soon(self._bear, self._process, seconds)

    def _bear(self, process: SimProcess, seconds: float) -> None:
        self._burdens_s += seconds
        self._burdened_until = self._world.now + self._burdens_s
        process.loop.spend(seconds)

    def pause(self) -> None:
        if self._process is not None:
            self._world.note("node", f"{self.host} is paused")
            self._process.loop.pause()

    def resume(self) -> None:
        if self._process is not None and self._process.loop.paused:
            self._world.note("node", f"{self.host} goes on")
            self._process.loop.resume()


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
