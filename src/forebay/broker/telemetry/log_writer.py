"""Log lines on their way out: through a bounded queue and a thread, so that no reader of the log can stop the
broker, and with repetitions left out, so that no client can fill it.

The caller only formats the line and queues it. The thread writes. If the reader of the output is slow, the
thread waits, the queue fills up, and further lines are dropped; their number is logged later.

Warnings and errors of one kind (one logger, one message, whatever the facts beside it) may come in a burst;
after that a few a second are written, and the next one, or a line a second later, says how many were not. The
audit log has limits of its own, by principal and address: one of all refusals together would let some hide
others.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

QUEUE_BYTES_MAX = 1 << 20
"""Of lines that are not written yet."""
FLUSH_S_MAX = 2.0
"""How long the end of the process waits for its last lines to be taken."""
BURST = 50
PER_SECOND = 5
"""Lines of one kind that are written: at once, and after that."""

_LIMITED_BY_ITSELF = "forebay.audit"
_KINDS_MAX = 1_000
_TELL_S = 1.0
_LINE_OVERHEAD = 100
"""The bytes that a queued line takes besides its characters."""


class LogWriter:
    """Writes lines to a descriptor from a thread of its own. `put` never waits for the reader."""

    def __init__(
        self,
        descriptor: int,
        about_dropped: Callable[[int], str],
        on_pause: Callable[[], bool],
        *,
        bytes_max: int = QUEUE_BYTES_MAX,
    ) -> None:
        """`about_dropped` makes the line that says how many were dropped. `on_pause` is called by the thread
        when there is nothing to write, and returns whether to call it again a little later."""
        self._descriptor = descriptor
        self._about_dropped = about_dropped
        self._on_pause = on_pause
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._bytes = 0
        """Of all lines that are not written yet, those under way too."""
        self._dropped = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="forebay-log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        with self._changed:
            if self._bytes + len(line) + _LINE_OVERHEAD > self._bytes_max or self._closed:
                self._dropped += 1
                return
            self._tell_dropped()  # where the lines are missing
            self._queue(line)
            self._changed.notify()

    def _queue(self, line: str) -> None:
        self._lines.append(line)
        self._bytes += len(line) + _LINE_OVERHEAD

    def _tell_dropped(self) -> None:
        if self._dropped:
            self._queue(self._about_dropped(self._dropped))
            self._dropped = 0

    def wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def close(self, seconds_max: float = FLUSH_S_MAX) -> None:
        """Have everything written that is taken within this time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds_max)

    # -- the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        again = False
        while True:
            with self._changed:
                if not self._lines and not self._closed:
                    self._changed.wait(_TELL_S if again else None)
                lines, self._lines = self._lines, deque()
                closed = self._closed
            if lines:
                self._write_all(lines)
            elif closed:
                return
            again = self._on_pause()

    def _write_all(self, lines: deque[str]) -> None:
        text = "".join(lines)
        lost = not self._write(text.encode(errors="backslashreplace"))
        with self._changed:
            self._bytes -= len(text) + _LINE_OVERHEAD * len(lines)
            if lost:
                self._dropped += len(lines)
            elif not self._lines:
                self._tell_dropped()

    def _write(self, data: bytes) -> bool:
        """Write to the reader, which the thread waits for here; False if that failed."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # another process has made the descriptor non-blocking
                select.select([], [self._descriptor], [])
            except OSError:
                return False
        return True


class Repetitions:
    """Which records of a kind are written, and how many were not."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kinds: dict[tuple[str, int, str], _Kind] = {}
        self.left_out = 0
        """Records left out that no log line has reported yet."""

    def admit(self, record: logging.LogRecord) -> int | None:
        """None if the record is one too many, else how many of its kind were before it."""
        key = (record.name, record.levelno, str(record.msg))
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _KINDS_MAX:
                self._kinds.clear()
                self.left_out = 0
            kind = self._kinds[key] = _Kind(self._now())
        if not kind.has_room(self._now()):
            kind.left_out += 1
            self.left_out += 1
            return None
        kind.tokens -= 1
        return self._take(kind)

    def _take(self, kind: _Kind) -> int:
        count, kind.left_out = kind.left_out, 0
        self.left_out -= count
        return count

    def untold(self, *, finally_: bool = False) -> list[tuple[str, int, str, int]]:
        """Logger, level, message and count of what was left out, of kinds that may be written again; of all
        kinds when nothing follows."""
        now = self._now()
        found = [
            (key, kind)
            for key, kind in self._kinds.items()
            if kind.left_out and (kind.has_room(now) or finally_)
        ]
        return [(*key, self._take(kind)) for key, kind in found]


class _Kind:
    """As many lines as there are tokens: they come back with time, up to a burst of them."""

    __slots__ = ("_at", "left_out", "tokens")

    def __init__(self, now: float) -> None:
        self._at = now
        self.tokens = float(BURST)
        self.left_out = 0

    def has_room(self, now: float) -> bool:
        self.tokens = min(self.tokens + (now - self._at) * PER_SECOND, BURST)
        self._at = now
        return self.tokens >= 1


class QueuedHandler(logging.Handler):
    """Formats records, leaves repetitions out, and queues the lines."""

    def __init__(
        self,
        descriptor: int,
        formatter: logging.Formatter,
        *,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._is_closed = False
        self._repetitions = Repetitions(now)
        self._writer = LogWriter(
            descriptor, self._about_dropped, self._tell_left_out, bytes_max=queue_bytes_max
        )

    def emit(self, record: logging.LogRecord) -> None:
        try:
            limited = record.levelno >= logging.WARNING and record.name != _LIMITED_BY_ITSELF
            if limited and not self._admit(record):
                self._writer.wake()
                return
            self._writer.put(self.format(record) + "\n")
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Queue a line about the error: the standard library would wait for the reader of stderr."""
        self._writer.put(self._line(record.name, logging.ERROR, f"cannot be formatted: {record.msg!r}"))

    def close(self) -> None:
        """Write what there is, and no more. The standard library closes handlers once more at the end."""
        if not self._is_closed:
            self._is_closed = True
            self._tell_left_out(finally_=True)
            self._writer.close()
            super().close()

    def _admit(self, record: logging.LogRecord) -> bool:
        left_out = self._repetitions.admit(record)
        if left_out:
            record.left_out = left_out
        return left_out is not None

    def _tell_left_out(self, *, finally_: bool = False) -> bool:
        """Say what was left out of kinds that have fallen silent; whether there is more to say."""
        self.acquire()
        try:
            for name, level, message, count in self._repetitions.untold(finally_=finally_):
                self._writer.put(self._line(name, level, message, left_out=count))
            return self._repetitions.left_out > 0
        finally:
            self.release()

    def _about_dropped(self, count: int) -> str:
        return self._line(
            __name__, logging.WARNING, "log lines were dropped: nobody read them", dropped=count
        )

    def _line(self, name: str, level: int, message: str, **facts: object) -> str:
        record = logging.LogRecord(name, level, "", 0, message, (), None)
        vars(record).update(facts)
        return self.format(record) + "\n"
