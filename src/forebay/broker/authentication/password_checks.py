"""Passwords that clients send (PLAIN), checked against the SCRAM credentials of the store.

Deriving the keys of a password is slow on purpose, so a thread does it. A user that does not exist takes as
long as one that does.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from forebay.broker.worker_threads import LazyThreads
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.user_image import ScramCredential
from forebay.core.security.sasl.exchange import Accepted, CheckPassword, Rejected, Verdict
from forebay.core.security.sasl.made_up_credentials import MadeUpCredentials
from forebay.wire.sasl.scram import ScramMechanism

_PREFERRED = (ScramMechanism.SHA_512, ScramMechanism.SHA_256)


class PasswordChecks:
    def __init__(self, metadata: Metadata, threads: LazyThreads, made_up: MadeUpCredentials) -> None:
        self._metadata = metadata
        self._threads = threads
        self._made_up = made_up

    async def verdict(self, asked: CheckPassword, is_wanted: Callable[[], bool]) -> Verdict:
        """`is_wanted`: whether the client still waits when its turn has come."""
        mechanism, credential = self._credential(asked.user)
        against = credential or self._made_up.credential(mechanism, asked.user, self._metadata.image.users)

        def matches() -> bool:
            if not is_wanted():
                return False
            salted = mechanism.salted_password(asked.password, against.salt, against.iterations)
            return hmac.compare_digest(mechanism.stored_key(salted), against.stored_key)

        matched = await self._threads.run(matches)
        if matched and credential is not None:
            return Accepted(user=asked.user)
        return Rejected(reason="wrong password" if credential else "no such user", user=asked.user)

    def _credential(self, user: str) -> tuple[ScramMechanism, ScramCredential | None]:
        found = self._metadata.image.users.get(user)
        for mechanism in _PREFERRED:
            if found is not None and mechanism in found.credentials:
                return mechanism, found.credentials[mechanism]
        return _PREFERRED[0], None

    def close(self) -> None:
        self._threads.close()
