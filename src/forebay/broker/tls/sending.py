"""The sending half of an encrypted stream: records that OpenSSL has made, and the stream below takes.

*Bounded memory.* OpenSSL's buffers keep the size of the largest piece that ever went through them. So they
are given one record (16 KiB) at a time, and one call takes at most PIECE_BYTES. What the stream below does
not take is kept, and nothing more is taken before that is gone.

*Fairness.* Encrypting takes the loop's time where `sendfile` takes the kernel's. So long responses are sent
in bursts, with a turn of the loop between them.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from forebay.broker.ports import Stream
from forebay.wire.parts import FileRange

RECORD_BYTES = 16 * 1024
"""The most that TLS puts into one record."""
PIECE_BYTES = 128 * 1024
BURST_BYTES = 1024 * 1024
"""After this much, which takes about a millisecond, other connections have their turn."""
_UNREAD_BYTES_MAX = 2 * PIECE_BYTES
"""A piece may wait to be sent, and what OpenSSL has to say by itself. That is little, unless the other side
asks for new keys all the time (KeyUpdate of TLS 1.3), each of which is answered."""


class EncryptedSending:
    __slots__ = (
        "_burst",
        "_corked",
        "_failure",
        "_handshaking",
        "_inner",
        "_outgoing",
        "_pending",
        "_readable",
        "_tls",
        "_writable",
    )

    _tls: ssl.SSLObject
    _outgoing: ssl.MemoryBIO
    """Both from when the handshake begins."""

    def __init__(self, inner: Stream) -> None:
        self._inner = inner
        self._handshaking = True
        self._failure: Exception | None = None
        self._pending: memoryview | None = None  # encrypted, and not taken by the stream below
        self._corked = False  # whether that is the beginning of more
        self._burst = 0  # how much was sent since others had their turn
        self._readable: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None

    def send(self, data: bytes | bytearray | memoryview) -> int:
        self._check_burst()
        size = self._encrypt(data)
        self._corked = False
        self._flush()
        return size

    def send_and_more(self, data: bytes | bytearray | memoryview) -> int:
        """Like `send`, but less than a record waits for the next call."""
        self._check_burst()
        size = self._encrypt(data)
        self._corked = self._pending is not None and len(self._pending) < RECORD_BYTES
        if not self._corked:
            self._flush()
        return size

    def send_file(self, source: FileRange) -> int:
        self._make_room()
        self._check_burst()
        data = source.file.pread(min(source.length, PIECE_BYTES), source.position)
        return self.send(data) if data else 0

    def _check_burst(self) -> None:
        if self._burst >= BURST_BYTES:
            self._burst = 0
            raise BlockingIOError  # which it is not, but the loop comes back to it at once

    def _make_room(self) -> None:
        """Raise BlockingIOError while the stream below has not taken what it was given."""
        self._check()
        if self._pending is not None and not self._corked and not self._flush():
            raise BlockingIOError

    def _encrypt(self, data: bytes | bytearray | memoryview) -> int:
        self._make_room()
        view = memoryview(data)[:PIECE_BYTES]
        self._burst += len(view)
        records = [] if self._pending is None else [bytes(self._pending)]
        for start in range(0, len(view), RECORD_BYTES):
            self._tls.write(view[start : start + RECORD_BYTES])
            records.append(self._outgoing.read())
        self._pending = memoryview(b"".join(records) if len(records) > 1 else records[0])
        return len(view)

    def _send_outgoing(self) -> None:
        """Send what OpenSSL has to say by itself."""
        if self._outgoing.pending:
            said = self._outgoing.read()
            self._pending = memoryview(said if self._pending is None else b"".join((self._pending, said)))
            if not self._flush() and self._pending is not None and len(self._pending) > _UNREAD_BYTES_MAX:
                raise ConnectionAbortedError("the other side asks for new keys and does not read the answers")

    def _flush(self) -> bool:
        """Give what is encrypted to the stream below; whether it has taken everything."""
        try:
            while self._pending is not None:
                sent = self._inner.send(self._pending)
                self._pending = self._pending[sent:] if sent < len(self._pending) else None
        except BlockingIOError:
            self._inner.on_writable(self._on_writable)
            return False
        return True

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._writable = callback
        wanted = callback is not None or self._pending is not None
        self._inner.on_writable(self._on_writable if wanted else None)

    def _on_writable(self) -> None:
        try:
            if not self._flush():
                return
        except OSError as error:
            self._failure = error
        if self._writable is not None:
            self._writable()
        else:
            self._inner.on_writable(None)
            if self._failure is not None and self._readable is not None:
                self._readable()

    def _check(self) -> None:
        if self._failure is not None:
            raise ConnectionAbortedError(str(self._failure)) from self._failure
        if self._handshaking:
            raise BlockingIOError
