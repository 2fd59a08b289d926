"""TLS as one listener speaks it, to clients and to other brokers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from forebay.broker.ports import Stream
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.tls.contexts import client_context, server_context
from forebay.broker.tls.handshakes import HandshakeTurns
from forebay.broker.tls.sending import PIECE_BYTES
from forebay.broker.tls.stream import NotTls, TlsStream
from forebay.broker.yielding.stranger_work import StrangerWork
from forebay.config import TlsConfig
from forebay.config.principal_mapping import Rule, parse_rules, user_of
from forebay.core.security.networks import network_of
from forebay.errors import ConfigError

log = logging.getLogger(__name__)

ANONYMOUS_USER = "ANONYMOUS"
_TOLD_AGAIN_S = 60.0
_TOLD_MAX = 1000
_ENDINGS_PER_TURN = 16
"""Handshakes that took too long, in a turn of the loop: a thousand that came at once are late at once."""
_NOT_TLS = (
    "a client does not speak TLS, and this listener does: set security.protocol=SSL at the client "
    "(SASL_SSL for SASL_PLAINTEXT), or connect it to a listener without TLS"
)


class PreparedTls(NamedTuple):
    """Settings of a listener, with what was read from the files that they name."""

    config: TlsConfig
    files: list[tuple[int, ...] | None]
    """The stamps that tell this state of the files from another."""
    server: ssl.SSLContext
    client: ssl.SSLContext
    rules: tuple[Rule, ...]
    subject_of: Callable[[bytes], str] | None
    """Reads the name in a certificate; None where clients show none."""


def prepare(listener: str, config: TlsConfig) -> PreparedTls:
    """Reads files; raises ConfigError that says what is wrong with them. Blocks."""
    return PreparedTls(
        config=config,
        files=_stamps(config),
        server=server_context(listener, config),
        client=client_context(listener, config),
        rules=parse_rules(config.principal_mapping_rules),
        subject_of=_reader_of_names() if config.client_auth != "none" else None,
    )


def _stamps(config: TlsConfig) -> list[tuple[int, ...] | None]:
    stamps: list[tuple[int, ...] | None] = []
    for place in config.files:
        try:
            found = Path(place).stat()
        except OSError:
            stamps.append(None)
        else:
            # The last is for files that get their owner or rights after their contents.
            stamps.append((found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return stamps


class TlsEndpoint:
    def __init__(
        self,
        listener: str,
        config: TlsConfig,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        strangers: StrangerWork,
    ) -> None:
        """Reads files; raises ConfigError that says what is wrong with them."""
        self._listener = listener
        self._in_force = prepare(listener, config)
        self._files = self._in_force.files
        """The state of the files that was tried last."""
        self._wanted: TlsConfig | None = None
        """Settings that are to be in force, and whose files could not be used so far."""
        self._metrics = metrics
        self._loop = loop
        self._turns = HandshakeTurns(strangers, config.handshakes_per_turn)
        self._endings = HandshakeTurns(strangers, _ENDINGS_PER_TURN)
        self._scratch = memoryview(bytearray(PIECE_BYTES))
        self._told: dict[tuple[str, str], float] = {}
        """When a failure was last logged, by host and reason."""

    # -- certificates and settings -------------------------------------------------------------------

    @property
    def config(self) -> TlsConfig:
        """The settings in force, or those that will be as soon as their files can be used."""
        return self._in_force.config if self._wanted is None else self._wanted

    @property
    def in_force(self) -> TlsConfig:
        return self._in_force.config

    def want(self, config: TlsConfig) -> None:
        """Other settings are to be in force. `read_again` reads their files."""
        self._wanted, self._files = config, []

    def take(self, prepared: PreparedTls) -> None:
        """From now on new connections use this. Those that are open go on as they are."""
        self._in_force, self._files, self._wanted = prepared, prepared.files, None

    def read_again(self, *, always: bool = False) -> PreparedTls | None:
        """The certificates and keys that are in the files now, if they have changed. Blocks.

        Files that do not fit together, as while they are being replaced, are not used. They are tried again
        when one of them changes.
        """
        config = self.config
        stamps = _stamps(config)
        if stamps == self._files and not always:
            return None
        self._files = stamps
        try:
            return prepare(self._listener, config)
        except ConfigError as error:
            log.error("new certificates cannot be used, the old ones stay", extra={"reason": str(error)})
            return None

    # -- clients -------------------------------------------------------------------------------------

    def accept(self, stream: Stream) -> TlsStream:
        """The stream of a client, encrypted; its handshake begins when the client does."""
        sender = network_of(stream.peer[0])
        begin = partial(self._turns.begin, sender)
        secured = TlsStream(stream, self._in_force.server, self._scratch, self._loop, begin=begin)
        secured.on_failed = partial(self._tell, stream.peer[0])
        timeout_s = self._in_force.config.handshake_timeout_ms / 1000
        secured.deadline = self._loop.call_later(timeout_s, self._endings.begin, sender, secured.give_up)
        return secured

    def user(self, stream: TlsStream) -> str | None:
        """Who a client is by its certificate; None if no rule of ssl.principal.mapping.rules is for it."""
        certificate, in_force = stream.peer_certificate(), self._in_force
        if certificate is None or in_force.subject_of is None:
            return None if in_force.config.client_auth == "required" else ANONYMOUS_USER
        try:
            name = in_force.subject_of(certificate)
        except ValueError as error:
            self._tell(stream.peer[0], error)
            return None
        user = user_of(in_force.rules, name)
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
                stream,
                self._in_force.client,
                self._scratch,
                self._loop,
                server_side=False,
                server_hostname=host,
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
