"""The input half of a connection: what was received and not handled yet, and the memory for it.

Bytes are received into a buffer that all connections share. What is left there when the whole requests are
handled is kept: as it is, or, if it is the beginning of a request that is larger than the shared buffer, in a
buffer of its own, which grows as the request comes. What is kept counts (`request_memory.py`). While there is
no memory for more, nothing is read. `connection.py` cuts the bytes into requests.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from struct import Struct
from typing import Protocol, cast

from forebay.broker.net.buffers import Buffer, BufferPool
from forebay.broker.net.request_memory import RequestMemory
from forebay.broker.net.responses.response_queue import Responses, ResponsesHost
from forebay.broker.net.scheduling.turns import Turns
from forebay.broker.ports import Stream

SIZE = Struct(">i")
SIZE_BYTES = 4
REQUEST_BYTES_MIN = 8
SMALL_BYTES = 4096
"""Requests up to this size are read even if there is no memory for larger ones."""
_PIECE_BYTES = 16 * 1024
"""How much is asked for at a time when memory is short."""


class ReceivingHost(ResponsesHost, Protocol):
    """The parts of the server that the input of a connection needs."""

    buffers: BufferPool
    turns: Turns
    request_bytes_max: int


class Receiving(Responses):
    __slots__ = (
        "_awaits_memory",
        "_awaits_since",
        "_buffers",
        "_filled",
        "_input",
        "_listening",
        "_memory",
        "_now",
        "_rest",
        "_turns",
        "frame_bytes_max",
        "held_bytes",
        "held_since",
    )

    def __init__(self, stream: Stream, server: ReceivingHost, memory: RequestMemory) -> None:
        super().__init__(stream, server)
        self._now = server.loop.time
        self._turns = server.turns
        self._buffers = server.buffers
        self._memory = memory
        self.frame_bytes_max = server.request_bytes_max  # less until a client has logged in
        self.held_bytes = 0
        self.held_since = 0.0
        self._rest = b""  # received but not handled: part of a frame, or frames that are held back
        self._input: Buffer | None = None  # borrowed while a large frame arrives
        self._filled = 0
        self._awaits_memory = False
        self._awaits_since = 0.0
        self._listening = True

    @abstractmethod
    def _consume(self, buffer: bytearray, end: int) -> None:
        """Handle the whole requests in buffer[:end], and keep the rest."""

    @abstractmethod
    def _on_readable(self) -> None: ...

    @property
    @abstractmethod
    def sender(self) -> str:
        """Whose requests these are."""

    @property
    @abstractmethod
    def is_held_back(self) -> bool:
        """True while nothing is read, for another reason than memory."""

    @property
    @abstractmethod
    def is_stalled(self) -> bool:
        """True while the client is the reason."""

    def _listen(self, on: bool) -> None:
        self._listening = on
        self._stream.on_readable(self._on_readable if on else None)

    # -- reading ---------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Take what has arrived into the shared buffer, behind what was left of the last time."""
        now = self.last_active = self._now()
        if now > self._turns.mark_due_s:
            self._turns.mark(now)
        try:
            if self._input is not None:
                self._receive_large(self._input)
                return
            buffers, rest = self._buffers, self._rest
            view = buffers.shared_view
            if rest:
                buffers.shared[: len(rest)] = rest
                view = view[len(rest) :]
            if self._memory.short:
                view = view[: self._room(rest)]
                if not view:
                    self._await_memory()
                    return
            received = self._stream.recv_into(view)
            if received:
                self._consume(buffers.shared, len(rest) + received)
            else:
                self.close()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def _room(self, rest: bytes) -> int:
        """How much may be read while memory is short: 0 if it has to wait."""
        missing = SMALL_BYTES - len(rest)
        if len(rest) >= SIZE_BYTES:
            total = SIZE_BYTES + SIZE.unpack_from(rest)[0]
            missing = max(
                1, min(total - len(rest), _PIECE_BYTES)
            )  # what is malformed is found when it is read
            if total > SMALL_BYTES and not self._memory.ask(self, len(rest) + missing, total):
                return 0
        return missing

    def _receive_large(self, buffer: Buffer) -> None:
        """Go on with a frame that is larger than the shared buffer, in one of its own and not beyond it."""
        total = SIZE_BYTES + SIZE.unpack_from(buffer)[0]
        full = min(total, self.held_bytes)
        received = self._stream.recv_into(memoryview(buffer)[self._filled : full])
        if not received:
            self.close()
            return
        self._filled += received
        if self._filled == total:
            self._consume(cast(bytearray, buffer), total)
            self._input = None
            self._buffers.give(buffer)
        elif self._filled == full:
            self._enlarge(memoryview(buffer)[:full], total)

    def frames_behind(self) -> Iterator[memoryview]:
        """The whole requests that have come and are not handled yet, to look at."""
        rest, position = memoryview(self._rest), 0
        while len(rest) - position >= SIZE_BYTES:
            start = position + SIZE_BYTES
            position = start + SIZE.unpack_from(rest, position)[0]
            if not start < position <= len(rest):
                return
            yield rest[start:position]

    # -- keeping ---------------------------------------------------------------------------------------

    def _keep(self, rest: memoryview, *, begins: bool) -> None:
        """Remember what could not be handled yet. `begins`: it is not of the request that was kept before."""
        if begins:
            if self.held_bytes:
                self._memory.release(self)
            self.held_since = self._now()
        size = SIZE.unpack_from(rest)[0] if len(rest) >= SIZE_BYTES else 0
        total = SIZE_BYTES + size
        if total > len(self._buffers.shared) and size <= self.frame_bytes_max:
            self._enlarge(rest, total)
        else:
            self._rest = bytes(rest)
            self._memory.hold(self, max(len(rest), self.held_bytes))

    def _enlarge(self, present: memoryview, total: int) -> None:
        """Move the beginning of a large frame to a buffer that has room for more of it, if that may be."""
        if self._memory.ask(self, self._buffers.least(total, len(present)), total):
            self._borrow(present, total)
            return
        if self._input is None:
            self._rest = bytes(present)
            self._memory.hold(self, max(len(present), self.held_bytes))
        self._await_memory()

    def _borrow(self, present: memoryview, total: int) -> None:
        before = self._input
        if before is not None and len(before) >= total:
            return  # it has room for all of it
        self._input = larger = self._buffers.take(total, len(present))
        larger[: len(present)] = present
        self._filled = len(present)
        self._rest = b""
        if len(larger) < total:
            self._memory.hold(self, len(larger))
        if before is not None:
            self._buffers.give(before)

    # -- waiting for memory ----------------------------------------------------------------------------

    def _await_memory(self) -> None:
        self._awaits_memory = True
        self._awaits_since = self._now()
        self._listen(False)

    def memory_granted(self) -> None:
        """There is memory for what this connection has asked for: read on."""
        self._awaits_memory = False
        if self.closed:
            return
        self.held_since += self._now() - self._awaits_since  # when it was not read
        present = memoryview(self._rest) if self._input is None else memoryview(self._input)[: self._filled]
        if len(present) >= SIZE_BYTES:
            total = SIZE_BYTES + SIZE.unpack_from(present)[0]
            if total > len(self._buffers.shared):
                self._borrow(present, total)
        self._listen(True)

    def _has_frame(self) -> bool:
        """True if the bytes left can be handled, if only to find that they are malformed."""
        rest = self._rest
        if len(rest) < SIZE_BYTES:
            return False
        size = SIZE.unpack_from(rest)[0]
        valid = REQUEST_BYTES_MIN <= size <= self.frame_bytes_max
        return not valid or len(rest) >= SIZE_BYTES + size

    def _forget_input(self) -> None:
        self._input = None
        self._rest = b""
        self._memory.release(self)
