"""A stream that is encrypted: the same calls as any `Stream`, around another one.

OpenSSL works on memory here and never sees a socket, so that the simulator can run it. That leaves four
things to do that a socket would, or the kernel: to bound the memory, also for reading, and to be fair
(`sending.py`), and two more.

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
from forebay.broker.tls.sending import PIECE_BYTES, RECORD_BYTES, EncryptedSending

_CIPHERTEXT_BYTES_MIN = RECORD_BYTES + 512
"""Room for one record with what TLS adds to it."""
_HANDSHAKE = 0x16
"""How the first record of TLS begins."""

Begin = Callable[[Callable[[], bool]], None]
"""Does a step of a handshake: at once, or when it is its turn."""


def at_once(step: Callable[[], bool]) -> None:
    step()


class NotTls(ssl.SSLError):
    """The first bytes are not the beginning of a handshake."""


class TlsStream(EncryptedSending):
    __slots__ = (
        "_ahead",
        "_armed",
        "_begin",
        "_closed",
        "_context",
        "_incoming",
        "_leftover",
        "_loop",
        "_read",
        "_scratch",
        "_server_side",
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
        super().__init__(inner)
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
        self._closed = False
        self._leftover = False  # whether more can be decrypted without anything coming
        self._ahead = b""  # decrypted before it was asked for
        self._armed = False
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

    # -- end -----------------------------------------------------------------------------------------

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
