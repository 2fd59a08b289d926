"""Two ends of a connection in memory, whose bytes arrive when a test says so, cut where it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from forebay.broker.ports import Address
from forebay.wire.parts import FileRange


class MemoryStream:
    """One end. What is sent waits in `sent` until `deliver` passes it on."""

    def __init__(self, name: str) -> None:
        self.peer: Address = (f"peer-of-{name}", 1)
        self.local: Address = (name, 2)
        self.sent = bytearray()
        self.window = 1 << 30
        """How much it takes before the other end has had it."""
        self.disturbed = -1
        """The byte, counted from the first that is sent, that is turned on its way."""
        self.total = 0
        self.inbox = bytearray()
        self.ended = False
        self.closed = False
        self.readable: Callable[[], None] | None = None
        self.writable: Callable[[], None] | None = None

    def recv_into(self, buffer: memoryview) -> int:
        if not self.inbox:
            if self.ended:
                return 0
            raise BlockingIOError
        size = min(len(buffer), len(self.inbox))
        buffer[:size] = self.inbox[:size]
        del self.inbox[:size]
        return size

    def at_end(self) -> bool:
        return self.ended and not self.inbox

    def send(self, data: bytes | bytearray | memoryview) -> int:
        room = self.window - len(self.sent)
        if room <= 0:
            raise BlockingIOError
        taken = bytearray(memoryview(data)[:room])
        if self.total <= self.disturbed < self.total + len(taken):
            taken[self.disturbed - self.total] ^= 0x55
        self.total += len(taken)
        self.sent += taken
        return len(taken)

    send_and_more = send

    def send_file(self, source: FileRange) -> int:
        return self.send(source.file.pread(source.length, source.position))

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self.readable = callback

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self.writable = callback

    def close(self) -> None:
        self.closed = True
        self.readable = self.writable = None


class MemoryWire:
    """Carries bytes between two ends, as a selector and a network would."""

    def __init__(self, left: MemoryStream, right: MemoryStream) -> None:
        self._ends = ((left, right), (right, left))

    async def settle(self) -> None:
        """Until nothing moves any more."""
        quiet = 0
        while quiet < 3:
            quiet = 0 if self._move() else quiet + 1
            await asyncio.sleep(0)

    def _move(self) -> bool:
        moved = False
        for source, target in self._ends:
            moved |= self._deliver(source, target)
            if (target.inbox or target.ended) and target.readable is not None:
                before = len(target.inbox)
                target.readable()
                moved |= len(target.inbox) < before
            if source.writable is not None and len(source.sent) < source.window:
                before = len(source.sent)
                source.writable()
                moved |= len(source.sent) > before
        return moved

    def _deliver(self, source: MemoryStream, target: MemoryStream) -> bool:
        moved = bool(source.sent)
        target.inbox += source.sent
        source.sent.clear()
        if source.closed:
            target.ended = True
        return moved


class CutWire(MemoryWire):
    """Holds back what `source` sends beyond each of the places, until all before it was read."""

    def __init__(self, source: MemoryStream, target: MemoryStream, places: Iterable[int]) -> None:
        super().__init__(source, target)
        self._cut_end = source
        self._places = sorted(places, reverse=True)
        self.passed = 0

    def _deliver(self, source: MemoryStream, target: MemoryStream) -> bool:
        if source is not self._cut_end:
            return super()._deliver(source, target)
        if target.inbox or not source.sent:
            return False
        size = len(source.sent)
        while self._places and self._places[-1] <= self.passed:
            self._places.pop()
        if self._places:
            size = min(size, self._places[-1] - self.passed)
        target.inbox += source.sent[:size]
        del source.sent[:size]
        self.passed += size
        return True
