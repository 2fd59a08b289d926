"""TLS as one listener speaks it, to clients and to other brokers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

from forebay.broker.ports import Stream
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.tls.contexts import client_context, server_context
from forebay.broker.tls.handshakes import HandshakeTurns
from forebay.broker.tls.stream import PIECE_BYTES, NotTls, TlsStream
from forebay.config import TlsConfig
from forebay.config.principal_mapping import parse_rules, user_of
from forebay.errors import ConfigError

log = logging.getLogger(__name__)

ANONYMOUS_USER = "ANONYMOUS"
_TOLD_AGAIN_S = 60.0
_TOLD_MAX = 1000
_NOT_TLS = (
    "a client does not speak TLS, and this listener does: set security.protocol=SSL at the client "
    "(SASL_SSL for SASL_PLAINTEXT), or connect it to a listener without TLS"
)


class TlsEndpoint:
    def __init__(
        self, listener: str, config: TlsConfig, metrics: Metrics, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Reads files; raises ConfigError that says what is wrong with them."""
        self._listener = listener
        self._config = config
        self._metrics = metrics
        self._loop = loop
        self._turns = HandshakeTurns(loop, config.handshakes_per_turn)
        self._scratch = memoryview(bytearray(PIECE_BYTES))
        self._rules = parse_rules(config.principal_mapping_rules)
        self._subject_of = _reader_of_names() if config.client_auth != "none" else None
        self._told: dict[tuple[str, str], float] = {}
        """When a failure was last logged, by host and reason."""
        self._files = self._stamps()
        self._server, self._client = self._contexts()

    def _contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        return server_context(self._listener, self._config), client_context(self._listener, self._config)

    # -- certificates --------------------------------------------------------------------------------

    def reload(self, *, always: bool = False) -> None:
        """Use the certificates and keys that are in the files now, for new connections. Blocks.

        Files that do not fit together, as while they are being replaced, are not used. They are tried again
        when one of them changes.
        """
        stamps = self._stamps()
        if stamps == self._files and not always:
            return
        self._files = stamps
        try:
            self._server, self._client = self._contexts()
        except ConfigError as error:
            log.error("new certificates cannot be used, the old ones stay", extra={"reason": str(error)})
        else:
            log.info("certificates were read again", extra={"listener": self._listener})

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        """What tells one state of the files from another."""
        stamps: list[tuple[int, int, int] | None] = []
        for place in self._config.files:
            try:
                found = Path(place).stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return stamps

    # -- clients -------------------------------------------------------------------------------------

    def accept(self, stream: Stream) -> TlsStream:
        """The stream of a client, encrypted; its handshake begins when the client does."""
        secured = TlsStream(stream, self._server, self._scratch, self._loop, begin=self._turns.begin)
        secured.on_failed = partial(self._tell, stream.peer[0])
        timeout_s = self._config.handshake_timeout_ms / 1000
        secured.deadline = self._loop.call_later(timeout_s, secured.give_up)
        return secured

    def user(self, stream: TlsStream) -> str | None:
        """Who a client is by its certificate; None if no rule of ssl.principal.mapping.rules is for it."""
        certificate = stream.peer_certificate()
        if certificate is None or self._subject_of is None:
            return None if self._config.client_auth == "required" else ANONYMOUS_USER
        try:
            name = self._subject_of(certificate)
        except ValueError as error:
            self._tell(stream.peer[0], error)
            return None
        user = user_of(self._rules, name)
        if not user:
            self._tell(stream.peer[0], ValueError(f"no rule of ssl.principal.mapping.rules is for {name!r}"))
            return None
        return user

    def _tell(self, host: str, error: Exception) -> None:
        self._metrics.tls_handshakes_failed += 1
        reason = _NOT_TLS if isinstance(error, NotTls) else describe(error)
        now = self._loop.time()
        if self._told.get((host, reason), -_TOLD_AGAIN_S) > now - _TOLD_AGAIN_S:
            return  # clients try again and again
        if len(self._told) >= _TOLD_MAX:
            self._told.clear()
        self._told[host, reason] = now
        log.warning(
            "no TLS with a client", extra={"client": host, "listener": self._listener, "reason": reason}
        )

    # -- other brokers -------------------------------------------------------------------------------

    async def secure(self, stream: Stream, host: str) -> TlsStream:
        """Begin TLS on a connection that was made to a broker; raises OSError that says why it cannot be."""
        done: asyncio.Future[None] = self._loop.create_future()
        try:
            secured = TlsStream(
                stream, self._client, self._scratch, self._loop, server_side=False, server_hostname=host
            )
        except (OSError, ValueError) as error:
            stream.close()
            raise OSError(describe(error)) from None
        secured.on_secured = lambda: _finish(done)
        secured.on_failed = lambda _: _finish(done)
        if secured.failure is not None or secured.is_secured:
            _finish(done)
        with contextlib.ExitStack() as closing:
            closing.callback(secured.close)
            await done
            if secured.failure is not None:
                raise OSError(f"no TLS: {describe(secured.failure)}")
            closing.pop_all()
        return secured


def _reader_of_names() -> Callable[[bytes], str]:
    # Imported when the broker starts, for that takes longer than the loop may stand still. Where no client is
    # asked for a certificate, it is not needed.
    from forebay.broker.tls.subject import subject_of

    return subject_of


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def describe(error: Exception) -> str:
    """Why there is no TLS, in words that say where to look."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return _REASONS.get(error.reason or "", error.reason or str(error))
    return str(error)


_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate, and ssl.client.auth=required",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "no common version of TLS: see ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "no cipher that both sides know",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the authority of this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept this broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side finds that this broker's certificate has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side wants a certificate: see ssl.keystore.location",
}
