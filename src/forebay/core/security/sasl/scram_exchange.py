"""SCRAM on the server: sends a nonce and the user's salt, checks the client's proof, returns its own.

A user that does not exist goes through the same steps, with a credential that is made up from its name
(`made_up_credentials.py`). So a client learns neither from the messages nor from their number if a user
exists.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NamedTuple

from forebay.core.cluster.images.user_image import ScramCredential
from forebay.core.security.sasl.exchange import Accepted, Challenge, Rejected, Step, Verdict
from forebay.errors import ProtocolError
from forebay.wire.sasl import scram
from forebay.wire.sasl.scram import ClientFirst, ScramMechanism

_NONCE_BYTES = 24


class Identity(NamedTuple):
    """The identity behind a name, and its proof."""

    user: str
    credential: ScramCredential
    expires_ms: int | None = None
    token_id: str = ""


FindIdentity = Callable[[str, bool], Identity | None]
"""Called with the name that a client gives, and True if it says that this is a delegation token's id."""


class ScramExchange:
    def __init__(
        self,
        mechanism: ScramMechanism,
        find: FindIdentity,
        *,
        made_up: Callable[[str], ScramCredential],
        entropy: Callable[[int], bytes],
    ) -> None:
        """`made_up`: credentials for users that do not exist."""
        self._hash = mechanism
        self._find = find
        self._entropy = entropy
        self._made_up = made_up
        self._first: ClientFirst | None = None
        self._known = False
        self._credential: ScramCredential | None = None
        self._nonce = ""
        self._challenge = ""

    def step(self, data: bytes) -> Step:
        try:
            return self._begin(data) if self._first is None else self._finish(self._first, data)
        except ProtocolError as error:
            return Rejected(reason=str(error), user="" if self._first is None else self._first.user)

    def resolve(self, _verdict: Verdict) -> Step:
        raise AssertionError("SCRAM needs no check")

    def _begin(self, data: bytes) -> Step:
        first = scram.parse_client_first(data)
        if not first.user:
            return Rejected(reason="the name is empty")
        if first.authzid not in ("", first.user):
            return Rejected(reason="it asks to act as another user", user=first.user)
        # Look up both, so that the time is the same.
        found, made_up = self._find(first.user, first.is_token), self._made_up(first.user)
        self._known = found is not None
        self._first = first
        self._credential = credential = made_up if found is None else found.credential
        self._nonce = first.nonce + scram.encoded(self._entropy(_NONCE_BYTES))
        salt = scram.encoded(credential.salt)
        self._challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        return Challenge(data=self._challenge.encode(), user=first.user)

    def _finish(self, first: ClientFirst, data: bytes) -> Step:
        credential, mechanism = self._credential, self._hash
        assert credential is not None
        final = scram.parse_client_final(data)
        if final.channel_binding != first.gs2_header.encode():
            return Rejected(
                reason="the header of the final message is not that of the first", user=first.user
            )
        # librdkafka up to 2.1 repeats its own nonce in front. Kafka accepts that, and the proof covers it.
        if not final.nonce.endswith(self._nonce):
            return Rejected(reason="the final message belongs to another login", user=first.user)
        if len(final.proof) != mechanism.key_bytes:
            return Rejected(reason="the proof has a wrong length", user=first.user)
        signed = f"{first.bare},{self._challenge},{final.without_proof}".encode()
        client_key = scram.xor(final.proof, mechanism.mac(credential.stored_key, signed))
        proven = hmac.compare_digest(mechanism.digest(client_key), credential.stored_key)
        # Looked up again: the user or the token may have been deleted since the first message.
        known = self._find(first.user, first.is_token) if self._known else None
        if known is None or not proven or known.credential != credential:
            missing = "no such token, or it has ended" if first.is_token else "no such user"
            return Rejected(reason=missing if known is None else "wrong password", user=first.user)
        signature = scram.encoded(mechanism.mac(credential.server_key, signed))
        return Accepted(
            user=known.user,
            data=f"v={signature}".encode(),
            expires_ms=known.expires_ms,
            token_id=known.token_id,
        )
