"""A network between simulated hosts: TCP as a program sees it, with a wire that can be slow or cut.

Between connections there is no order. A cut from one host to another holds back everything in that direction,
until it is mended or the connection is reset: TCP behaves like that, because it retransmits. A process that
is killed resets its connections, and its kernel refuses new ones. A firewall can refuse in the name of a
process that is alive. A host that loses power says nothing: the other side notices when it sends something
after the host is back, or by its own timeout.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from zlib import crc32

from forebay.broker.ports import Accepting, Address, Stream
from forebay.sim.world.loop import ProcessLoop
from forebay.sim.world.stream import SimStream
from forebay.sim.world.virtual_time import World

_DELAY_S_MIN = 50e-6
_DELAY_S_MAX = 600e-6
_SLOW_CHANCE = 0.02
_SLOW_S = (0.005, 0.3)
_SPLIT_CHANCE = 0.05
_CONNECT_ATTEMPTS_S = (0.2, 0.6, 1.4, 3.0)
_EPHEMERAL_PORTS = 30_000


class SimListener:
    def __init__(
        self, network: SimNetwork, loop: ProcessLoop, address: Address, on_stream: Callable[[Stream], None]
    ) -> None:
        self.address = address
        self.loop = loop
        self._network = network
        self._on_stream = on_stream
        self._backlog: list[SimStream] = []
        self._started = False

    def start(self, strangers: Accepting) -> None:  # noqa: ARG002
        self._started = True
        backlog, self._backlog = self._backlog, []
        for stream in backlog:
            self.offer(stream)

    def offer(self, stream: SimStream) -> None:
        if self._started:
            self.loop.call_soon(self._on_stream, stream)
        else:
            self._backlog.append(stream)

    def close(self) -> None:
        self._network.unlisten(self)
        for stream in self._backlog:
            stream.close()
        self._backlog.clear()


class HostNetwork:
    """The network as one process of one host uses it: the port that a broker is given."""

    def __init__(self, network: SimNetwork, loop: ProcessLoop, host: str) -> None:
        self._network = network
        self._loop = loop
        self._host = host

    def listen(self, host: str, port: int, on_stream: Callable[[Stream], None]) -> SimListener:
        return self._network.listen(self._loop, (host, port), on_stream)

    async def connect(self, host: str, port: int) -> Stream:
        opened: asyncio.Future[SimStream] = self._loop.create_future()
        self._network.connect(self._loop, self._host, (host, port), opened)
        return await opened


class SimNetwork:
    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("network")
        self._random = self._chance.random
        self._listeners: dict[Address, SimListener] = {}
        self._streams: dict[SimStream, None] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._slow: set[tuple[str, str]] = set()
        self._dark: set[str] = set()
        self._refused: set[tuple[str, str]] = set()
        self.refusals: dict[tuple[str, str], list[float]] = {}
        """When a host was refused by another, by the names of the two."""
        self._next_port = _EPHEMERAL_PORTS

    # -- connections -------------------------------------------------------------------------------------

    def listen(self, loop: ProcessLoop, address: Address, on_stream: Callable[[Stream], None]) -> SimListener:
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{address[0]}:{address[1]} is in use")
        listener = self._listeners[address] = SimListener(self, loop, address, on_stream)
        return listener

    def unlisten(self, listener: SimListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def connect(
        self,
        loop: ProcessLoop,
        host: str,
        address: Address,
        opened: asyncio.Future[SimStream],
        tries: int = 0,
    ) -> None:
        self._world.after(self.delay_s(), self._knock, loop, host, address, opened, tries)

    def _knock(
        self, loop: ProcessLoop, host: str, address: Address, opened: asyncio.Future[SimStream], tries: int
    ) -> None:
        if opened.done() or not loop.alive:
            return
        there = address[0]
        if there in self._dark or self.is_cut(host, there) or self.is_cut(there, host):
            if tries == len(_CONNECT_ATTEMPTS_S):
                opened.set_exception(TimeoutError(errno.ETIMEDOUT, "no answer"))
            else:
                self._world.after(
                    _CONNECT_ATTEMPTS_S[tries], self.connect, loop, host, address, opened, tries + 1
                )
            return
        listener = self._listeners.get(address)
        if listener is None or (host, there) in self._refused:
            self._world.after(self.delay_s(), self._refuse, host, there, opened)
            return
        self._world.after(self.delay_s(), self._open, loop, host, listener, opened)

    def _refuse(self, host: str, there: str, opened: asyncio.Future[SimStream]) -> None:
        if not opened.done():
            self.refusals.setdefault((host, there), []).append(self._world.now)
            opened.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there"))

    def _open(
        self, loop: ProcessLoop, host: str, listener: SimListener, opened: asyncio.Future[SimStream]
    ) -> None:
        if opened.done() or not loop.alive or not listener.loop.alive:
            self._refuse(host, listener.address[0], opened)
            return
        self._next_port += 1
        local, there = (host, self._next_port), listener.address
        near = SimStream(self, loop, local, there)
        far = SimStream(self, listener.loop, there, local)
        near.other, far.other = far, near
        self._streams |= {near: None, far: None}
        listener.offer(far)
        opened.set_result(near)

    def forget_if_done(self, stream: SimStream) -> None:
        if stream.done:
            self._streams.pop(stream, None)

    # -- trouble -----------------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def is_dark(self, host: str) -> bool:
        return host in self._dark

    def cut(self, source: str, target: str) -> None:
        """Cut traffic from one host to the other; the opposite direction is not affected."""
        self._cuts.add((source, target))

    def mend(self, source: str, target: str) -> None:
        self._cuts.discard((source, target))
        for stream in list(self._streams):
            if (stream.local[0], stream.peer[0]) == (source, target):
                stream.deliver()

    def slow_down(self, source: str, target: str) -> None:
        self._slow.add((source, target))

    def speed_up(self, source: str, target: str) -> None:
        self._slow.discard((source, target))

    def refuse(self, source: str, target: str) -> None:
        """Refuse new connections from one host to the other from now on."""
        self._refused.add((source, target))

    def accept(self, source: str, target: str) -> None:
        self._refused.discard((source, target))

    def reset_between(self, host: str, other: str) -> None:
        """Break every connection between two hosts, as a middlebox that forgets them would."""
        for stream in list(self._streams):
            if stream.local[0] == host and stream.peer[0] == other:
                stream.be_reset()
                stream.other.be_reset()

    def process_ended(self, loop: ProcessLoop) -> None:
        """The kernel closes what the process had open, and says so."""
        for address in [address for address, item in self._listeners.items() if item.loop is loop]:
            del self._listeners[address]
        for stream in [stream for stream in self._streams if stream.loop is loop]:
            stream.abandon()

    def power_lost(self, host: str) -> None:
        self._dark.add(host)
        for stream in [stream for stream in self._streams if stream.local[0] == host]:
            stream.silent = True
            del self._streams[stream]
        for address in [address for address in self._listeners if address[0] == host]:
            del self._listeners[address]

    def power_back(self, host: str) -> None:
        """Peers that still send on an old connection get a reset: the host does not know it any more."""
        self._dark.discard(host)
        for stream in list(self._streams):
            if stream.peer[0] == host and stream.other.silent and stream.unacknowledged:
                self._world.after(self.delay_s(), stream.be_reset)

    # -- the wire ----------------------------------------------------------------------------------------

    def delay_s(self, source: str = "", target: str = "") -> float:
        if self._random() < _SLOW_CHANCE or (source, target) in self._slow:
            return self._chance.uniform(*_SLOW_S)
        return _DELAY_S_MIN + (_DELAY_S_MAX - _DELAY_S_MIN) * self._random()

    def split(self, piece: bytes) -> tuple[bytes, ...]:
        """Bytes that were sent in one piece may arrive in two."""
        if len(piece) > 1 and self._random() < _SPLIT_CHANCE:
            middle = self._chance.randrange(1, len(piece))
            return piece[:middle], piece[middle:]
        return (piece,)

    def note(self, stream: SimStream, piece: bytes) -> None:
        self._world.note("net", f"{stream.way} {len(piece)} {crc32(piece):08x}")
