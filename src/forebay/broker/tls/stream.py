"""A stream that is encrypted: the same calls as any `Stream`, around another one.

OpenSSL works on memory here and never sees a socket, so that the simulator can run it. That leaves four
things to do that a socket would, or the kernel.

*Bounded memory.* OpenSSL's buffers keep the size of the largest piece that ever went through them. So they
are given one record (16 KiB) at a time, and one call takes at most PIECE_BYTES. What the stream below does
not take is kept, and nothing more is taken before that is gone.

*Fairness.* Encrypting takes the loop's time where `sendfile` takes the kernel's. So a long range is sent in
bursts, with a turn of the loop between them.

*Readiness.* What has been decrypted is not seen by a selector. When a buffer was filled, there may be more of
it: then the reader is called again, as a level-triggered selector would.

*The handshake.* It goes on by itself when bytes come. Until it is done, reading finds nothing. When it fails,
`on_failed` is called and reading raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

from forebay.broker.ports import Address, Stream
from forebay.wire.parts import FileRange

RECORD_BYTES = 16 * 1024
"""The most that TLS puts into one record."""
PIECE_BYTES = 128 * 1024
BURST_BYTES = 1024 * 1024
"""After this much of files, which takes about a millisecond, other connections have their turn."""
_CIPHERTEXT_BYTES_MIN = RECORD_BYTES + 512
"""Room for one record with what TLS adds to it."""
_UNREAD_BYTES_MAX = 2 * PIECE_BYTES
"""A piece may wait to be sent, and what OpenSSL has to say by itself. That is little, unless the other side
asks for new keys all the time (KeyUpdate of TLS 1.3), each of which is answered."""
_HANDSHAKE = 0x16
"""How the first record of TLS begins."""

Begin = Callable[[Callable[[], bool]], None]
"""Does a step of a handshake: at once, or when it is its turn."""


def at_once(step: Callable[[], bool]) -> None:
    step()


class NotTls(ssl.SSLError):
    """The first bytes are not the beginning of a handshake."""


class TlsStream:
    __slots__ = (
        "_ahead",
        "_armed",
        "_begin",
        "_burst",
        "_closed",
        "_context",
        "_corked",
        "_failure",
        "_handshaking",
        "_incoming",
        "_inner",
        "_leftover",
        "_loop",
        "_outgoing",
        "_pending",
        "_read",
        "_readable",
        "_scratch",
        "_server_side",
        "_tls",
        "_writable",
        "deadline",
        "local",
        "on_failed",
        "on_secured",
        "peer",
    )

    def __init__(
        self,
        inner: Stream,
        context: ssl.SSLContext,
        scratch: memoryview,
        loop: asyncio.AbstractEventLoop,
        *,
        server_side: bool = True,
        server_hostname: str | None = None,
        begin: Begin = at_once,
    ) -> None:
        """`scratch` is memory that streams of one loop share, PIECE_BYTES of it."""
        self._inner = inner
        self._loop = loop
        self._scratch = scratch
        self._begin = begin
        self._server_side = server_side
        self.peer: Address = inner.peer
        self.local: Address = inner.local
        self.on_secured: Callable[[], None] | None = None
        self.on_failed: Callable[[Exception], None] | None = None
        self.deadline: asyncio.TimerHandle | None = None  # for the handshake; cancelled when that ends
        self._context: ssl.SSLContext | None = context  # until something has come
        self._handshaking = True
        self._failure: Exception | None = None
        self._closed = False
        self._leftover = False  # whether more can be decrypted without anything coming
        self._ahead = b""  # decrypted before it was asked for
        self._armed = False
        self._pending: memoryview | None = None  # encrypted, and not taken by the stream below
        self._corked = False  # whether that is the beginning of more
        self._burst = 0  # how much of files was sent in one go
        self._readable: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None
        inner.on_readable(self._on_readable)
        if not server_side:
            self._wrap(context, server_hostname)
            self._shake()

    # -- the handshake -------------------------------------------------------------------------------

    def _wrap(self, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        """Not before the other side has begun: a connection that says nothing should cost little."""
        self._context = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._server_side,
            server_hostname=server_hostname,
        )
        self._read: Any = self._tls.read  # into a buffer; typeshed does not know that it returns a count

    @property
    def is_secured(self) -> bool:
        return not self._handshaking

    @property
    def failure(self) -> Exception | None:
        return self._failure

    def peer_certificate(self) -> bytes | None:
        """The certificate of the other side, which was verified (DER)."""
        return self._tls.getpeercert(binary_form=True)

    def _continue_handshake(self) -> bool:
        """Go on with the handshake; True if bytes have come."""
        if self._closed or self._failure is not None:
            return False
        self._inner.on_readable(self._on_readable)
        try:
            received = self._inner.recv_into(self._scratch[:_CIPHERTEXT_BYTES_MIN])
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail(error)
            return False
        if not received:
            self._fail(ConnectionResetError("closed by the other side during the TLS handshake"))
            return False
        if self._context is not None and self._scratch[0] != _HANDSHAKE:
            self._fail(NotTls("what came is not TLS"))
        else:
            if self._context is not None:
                self._wrap(self._context)
            self._incoming.write(self._scratch[:received])
            self._shake()
        return True

    def _shake(self) -> None:
        try:
            done = self._step()
        except (OSError, ValueError) as error:
            self._fail(error)
            return
        if done:
            self._end_wait()
            self._handshaking = False
            self._leftover = bool(self._incoming.pending)
            if self.on_secured is not None:
                self.on_secured()
            self._arm()

    def _step(self) -> bool:
        """Go on as far as what has come allows; whether the handshake is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_outgoing()
            return False
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._send_outgoing()  # the alert that says why
            raise
        self._send_outgoing()
        return True

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._end_wait()
        if not self._closed:
            self._inner.on_readable(None)
        if self.on_failed is not None:
            self.on_failed(error)
        if self._readable is not None and not self._closed:
            self._readable()  # reading raises, and so the owner closes it

    def _end_wait(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def give_up(self) -> bool:
        """End a handshake that takes too long; False if it has ended already."""
        if not self._handshaking or self._failure is not None or self._closed:
            return False
        self._fail(TimeoutError("the TLS handshake took too long"))
        return True

    # -- reading -------------------------------------------------------------------------------------

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._readable = callback
        if self._handshaking:
            return  # which listens by itself
        self._inner.on_readable(None if callback is None else self._on_readable)
        self._arm()

    def _on_readable(self) -> None:
        if self._handshaking:
            self._inner.on_readable(None)  # until it is its turn
            self._begin(self._continue_handshake)
        elif self._readable is None:
            self._inner.on_readable(None)  # until there is somebody to read
        else:
            self._readable()
            self._arm()

    def _arm(self) -> None:
        if (self._leftover or self._ahead) and self._readable is not None and not self._armed:
            self._armed = True
            self._loop.call_soon(self._fire)

    def _fire(self) -> None:
        self._armed = False
        if self._readable is not None and (self._leftover or self._ahead) and not self._closed:
            self._readable()
            self._arm()

    def recv_into(self, buffer: memoryview) -> int:
        self._check()
        if self._ahead:
            size = min(len(buffer), len(self._ahead))
            buffer[:size], self._ahead = self._ahead[:size], self._ahead[size:]
            return size
        filled = self._decrypt(buffer, 0) if self._leftover else 0
        if filled is None:
            return 0
        return filled or self._receive(buffer)

    def _receive(self, buffer: memoryview) -> int:
        room = max(min(len(buffer), PIECE_BYTES), _CIPHERTEXT_BYTES_MIN)
        scratch = self._scratch
        received = self._inner.recv_into(scratch[:room])
        if not received:
            return 0
        filled = 0
        for start in range(0, received, RECORD_BYTES):
            self._incoming.write(scratch[start : min(start + RECORD_BYTES, received)])
            found = self._decrypt(buffer, filled)
            if found is None:
                return filled  # a second call finds the end again
            filled = found
        if not filled:
            raise BlockingIOError
        return filled

    def _decrypt(self, buffer: memoryview, filled: int) -> int | None:
        """Fill what is left of the buffer; how far it is filled then, None at the end of the stream."""
        read, size, incoming = self._read, len(buffer), self._incoming
        self._leftover = True  # also at the end, which is found again after what came before is taken
        try:
            while filled < size:
                count = read(size - filled, buffer[filled:])
                if not count:
                    return filled or None
                filled += count
                if not incoming.pending and not self._tls.pending():
                    self._leftover = False  # as most often; to be told so by an exception costs more
                    break
        except ssl.SSLWantReadError:
            self._leftover = False
            self._send_outgoing()  # an answer to a change of keys
        except ssl.SSLZeroReturnError:
            return filled or None
        return filled

    def at_end(self) -> bool:
        """True if the other side has gone, as far as can be told from one record."""
        if self._failure is not None:
            return True
        if self._handshaking or self._ahead:
            return False
        if not self._leftover and self._inner.at_end():
            return True
        record = memoryview(bytearray(RECORD_BYTES))
        try:
            size = self.recv_into(record)
        except BlockingIOError:
            return False
        except OSError:
            return True
        self._ahead = bytes(record[:size])
        return not size

    # -- writing -------------------------------------------------------------------------------------

    def send(self, data: bytes | bytearray | memoryview) -> int:
        size = self._encrypt(data)
        self._corked = False
        self._flush()
        return size

    def send_and_more(self, data: bytes | bytearray | memoryview) -> int:
        """Like `send`, but less than a record waits for the next call."""
        size = self._encrypt(data)
        self._corked = self._pending is not None and len(self._pending) < RECORD_BYTES
        if not self._corked:
            self._flush()
        return size

    def send_file(self, source: FileRange) -> int:
        self._make_room()
        if self._burst >= BURST_BYTES:
            self._burst = 0
            raise BlockingIOError  # which it is not, but the loop comes back to it at once
        data = source.file.pread(min(source.length, PIECE_BYTES), source.position)
        self._burst += len(data)
        return self.send(data) if data else 0

    def _make_room(self) -> None:
        """Raise BlockingIOError while the stream below has not taken what it was given."""
        self._check()
        if self._pending is not None and not self._corked and not self._flush():
            raise BlockingIOError

    def _encrypt(self, data: bytes | bytearray | memoryview) -> int:
        self._make_room()
        view = memoryview(data)[:PIECE_BYTES]
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

    # -- end -----------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise ConnectionAbortedError(str(self._failure)) from self._failure
        if self._handshaking:
            raise BlockingIOError

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._end_wait()
        if not self._handshaking and self._failure is None:
            self._say_goodbye()
        self._readable = self._writable = self.on_secured = self.on_failed = None
        self._inner.close()

    def _say_goodbye(self) -> None:
        """Tell the other side that nothing was cut off, if that can be told at once."""
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._send_outgoing()
