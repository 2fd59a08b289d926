"""One side of a simulated connection: a socket as a program sees it, and what its kernel does for it.

Bytes of one direction arrive in the order they were sent, or not at all. The network decides when they
arrive, and if they can.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import Protocol

from forebay.broker.ports import Address
from forebay.broker.tiers.chunk_files import ChunkFile
from forebay.sim.world.disks.disk_handle import SimFile
from forebay.sim.world.loop import ProcessLoop
from forebay.storage.log.segment.batch_file import LentFile
from forebay.wire.parts import FileRange

_WINDOW_BYTES = 256 * 1024

_END = b"end"
_RESET = b"reset"


class Wire(Protocol):
    """A stream's interface to its network."""

    def forget_if_done(self, stream: SimStream) -> None: ...
    def split(self, piece: bytes) -> tuple[bytes, ...]: ...
    def delay_s(self, source: str, target: str) -> float: ...
    def is_cut(self, source: str, target: str) -> bool: ...
    def is_dark(self, host: str) -> bool: ...
    def note(self, stream: SimStream, piece: bytes) -> None: ...


class _LevelTrigger:
    """Calls back like a level-triggered selector: again and again, as long as it is due."""

    def __init__(self, loop: ProcessLoop, is_due: Callable[[], bool]) -> None:
        self.callback: Callable[[], None] | None = None
        self._loop = loop
        self._is_due = is_due
        self._queued = False

    def set(self, callback: Callable[[], None] | None) -> None:
        self.callback = callback
        self.tell()

    def tell(self) -> None:
        if self.callback is not None and not self._queued and self._is_due():
            self._queued = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        self._queued = False
        if self.callback is not None and self._is_due():
            self.callback()
            self.tell()


class SimStream:
    """One side of a connection."""

    def __init__(self, network: Wire, loop: ProcessLoop, local: Address, peer: Address) -> None:
        self.local = local
        self.peer = peer
        self.way = f"{local[0]}:{local[1]} > {peer[0]}:{peer[1]}"
        self.loop = loop
        self.other: SimStream
        self.silent = False
        """The host has lost power: it neither receives nor sends anything."""
        self._network = network
        self._inbox = bytearray()
        self._ended = False
        self._was_reset = False
        self._closed = False
        self._unread_by_peer = 0
        self._outgoing: deque[tuple[float, bytes, bool]] = deque()
        """When each piece arrives at the other side, the piece, and True if it is a mark."""
        self._last_arrival = 0.0
        self._delivering = False
        self._reader = _LevelTrigger(loop, self._has_news)
        self._writer = _LevelTrigger(loop, self._has_room)

    # -- what the program does ---------------------------------------------------------------------------

    def recv_into(self, buffer: memoryview) -> int:
        self._check()
        if self._inbox:
            size = min(len(buffer), len(self._inbox))
            buffer[:size] = self._inbox[:size]
            del self._inbox[:size]
            self.other.was_read(size)
            return size
        if self._ended:
            return 0
        raise BlockingIOError

    def at_end(self) -> bool:
        return self._was_reset or (self._ended and not self._inbox)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        self._check()
        room = _WINDOW_BYTES - self._unread_by_peer
        if room <= 0:
            raise BlockingIOError
        piece = bytes(memoryview(data)[:room])
        self._unread_by_peer += len(piece)
        self._put(piece)
        return len(piece)

    def send_and_more(self, data: bytes | bytearray | memoryview) -> int:
        return self.send(data)

    def send_file(self, source: FileRange) -> int:
        room = _WINDOW_BYTES - self._unread_by_peer
        if room <= 0:
            raise BlockingIOError
        file = source.file.file if isinstance(source.file, (ChunkFile, LentFile)) else source.file
        assert isinstance(file, SimFile)
        data = file.pass_on(min(room, source.length), source.position)
        return self.send(data) if data else 0

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._reader.set(callback)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._writer.set(callback)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._forget_callbacks()
        if not self._was_reset:
            self._put(_RESET if self._inbox else _END, mark=True)
        self._network.forget_if_done(self)

    def _check(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the stream is closed")
        if self._was_reset:
            raise ConnectionResetError(errno.ECONNRESET, "reset by peer")

    # -- what the kernel does ----------------------------------------------------------------------------

    def abandon(self) -> None:
        """The process has ended: notify the other side."""
        self._closed = True
        self._forget_callbacks()
        self._put(_RESET, mark=True)

    def _forget_callbacks(self) -> None:
        self._reader.callback = self._writer.callback = None

    def be_reset(self) -> None:
        if not self._closed and not self._was_reset:
            self._was_reset = True
            self._outgoing.clear()
            self._network.forget_if_done(self)
            self._reader.tell()
            self._writer.tell()

    def was_read(self, size: int) -> None:
        self._unread_by_peer -= size
        self._writer.tell()

    @property
    def unacknowledged(self) -> bool:
        return bool(self._outgoing)

    @property
    def done(self) -> bool:
        return (self._closed or self._was_reset) and not self._outgoing

    def _put(self, piece: bytes, *, mark: bool = False) -> None:
        if self.silent:
            return
        for part in (piece,) if mark else self._network.split(piece):
            arrival = self.loop.world.now + self._network.delay_s(self.local[0], self.peer[0])
            if arrival > self._last_arrival:
                self._last_arrival = arrival
            self._outgoing.append((self._last_arrival, part, mark))
        self.deliver()

    def deliver(self) -> None:
        """Have the next piece arrive when it is due; called again when a cut was mended."""
        if self._outgoing and not self._delivering:
            self._delivering = True
            self.loop.world.at(self._outgoing[0][0], self._arrive)

    def _arrive(self) -> None:
        self._delivering = False
        if not self._outgoing or self._network.is_cut(self.local[0], self.peer[0]):
            return
        if self.other.silent:
            if not self._network.is_dark(self.peer[0]):
                self.be_reset()
            return
        _, piece, mark = self._outgoing.popleft()
        self._network.note(self, piece)
        self.other.take(piece, mark=mark)
        self.deliver()
        self._network.forget_if_done(self)

    def take(self, piece: bytes, *, mark: bool) -> None:
        if self._was_reset:
            return
        if self._closed:
            if not mark:
                self._put(_RESET, mark=True)
        elif not mark:
            self._inbox += piece
        elif piece == _END:
            self._ended = True
        else:
            self.be_reset()
        self._reader.tell()

    def _has_news(self) -> bool:
        return bool(self._inbox) or self._ended or self._was_reset

    def _has_room(self) -> bool:
        return self._unread_by_peer < _WINDOW_BYTES or self._was_reset
