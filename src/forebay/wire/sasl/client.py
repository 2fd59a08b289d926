"""The client's side of a login, without I/O: the messages to send in reply to the server's.

A shell sends SaslHandshake with `mechanism`, then each message in a SaslAuthenticate. It begins with
`first()`, and passes each answer to `step`, until that returns None: the login is complete.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Protocol

from forebay.errors import ConfigError, ErrorCode, KafkaError, ProtocolError
from forebay.wire.sasl import scram
from forebay.wire.sasl.scram import ScramMechanism

_NONCE_BYTES = 24
_SALTED_MAX = 16
_ITERATIONS_MAX = 1_000_000
"""A server that demands more wastes the client's time."""


class Login(Protocol):
    """One login, to be used once."""

    mechanism: str

    def first(self) -> bytes: ...
    def step(self, answer: bytes, /) -> bytes | None:
        """Raises KafkaError SASL_AUTHENTICATION_FAILED unless the server proves that it knows the user."""


class PlainLogin:
    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def step(self, _answer: bytes) -> bytes | None:
        return None


class SaltedPasswords:
    """The salted passwords of one user that were derived last: many connections log in with the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[ScramMechanism, bytes, int], bytes] = {}

    def get(self, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
        key = mechanism, salt, iterations
        if key not in self._known:
            if len(self._known) >= _SALTED_MAX:
                self._known.clear()
            self._known[key] = mechanism.salted_password(password, salt, iterations)
        return self._known[key]


class ScramLogin:
    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        entropy: Callable[[int], bytes],
        salted: SaltedPasswords | None = None,
        *,
        is_token: bool = False,
    ) -> None:
        """`salted`: from earlier logins of the user. `is_token`: it is a delegation token, and says so."""
        self._salted = SaltedPasswords() if salted is None else salted
        self.mechanism = mechanism.sasl_name
        self._hash = mechanism
        self._password = password
        self._nonce = scram.encoded(entropy(_NONCE_BYTES))
        self._bare = f"n={scram.escaped(user)},r={self._nonce}"
        if is_token:
            self._bare += f",{scram.TOKEN_EXTENSION}=true"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def step(self, answer: bytes) -> bytes | None:
        try:
            if self._signature is None:
                return self._prove(bytes(answer))
            if hmac.compare_digest(scram.parse_server_final(answer), self._signature):
                return None
        except ProtocolError as error:
            raise _failed(str(error)) from None
        raise _failed("the server does not know the user's password: is it the right one?")

    def _prove(self, answer: bytes) -> bytes:
        server, mechanism = scram.parse_server_first(answer), self._hash
        if not server.nonce.startswith(self._nonce) or len(server.nonce) == len(self._nonce):
            raise ProtocolError("the server's SCRAM message is not an answer to ours")
        if not scram.ITERATIONS_MIN <= server.iterations <= _ITERATIONS_MAX:
            raise ProtocolError(f"the server asks for {server.iterations} SCRAM iterations")
        salted = self._salted.get(mechanism, self._password, server.salt, server.iterations)
        client_key = mechanism.mac(salted, b"Client Key")
        bare = f"c=biws,r={server.nonce}"
        signed = f"{self._bare},{answer.decode()},{bare}".encode()
        proof = scram.xor(client_key, mechanism.mac(mechanism.digest(client_key), signed))
        self._signature = mechanism.mac(mechanism.server_key(salted), signed)
        return f"{bare},p={scram.encoded(proof)}".encode()


def new_login(
    mechanism: str,
    user: str,
    password: str,
    entropy: Callable[[int], bytes],
    salted: SaltedPasswords | None = None,
    *,
    is_token: bool = False,
) -> Login:
    """A login by name and password; raises ConfigError for an unknown mechanism."""
    if mechanism == PlainLogin.mechanism:
        return PlainLogin(user, password)
    if mechanism in scram.BY_NAME:
        return ScramLogin(scram.BY_NAME[mechanism], user, password, entropy, salted, is_token=is_token)
    known = ", ".join((PlainLogin.mechanism, *scram.BY_NAME))
    raise ConfigError(f"the SASL mechanism {mechanism!r} is not known here, use one of {known}")


def _failed(message: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
