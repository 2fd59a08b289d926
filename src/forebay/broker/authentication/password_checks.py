"""Passwords that clients send (PLAIN), checked against the SCRAM credentials of the store.

Deriving the keys of a password is slow on purpose, so a thread does it, for one address after the other. A
user that does not exist takes as long as one that does.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from forebay.broker.authentication.fair_threads import FairThreads
from forebay.coordination.metadata import Metadata
from forebay.core.security.sasl.exchange import Accepted, CheckPassword, Rejected, Verdict
from forebay.core.security.sasl.made_up_credentials import MadeUpCredentials, password_credential


class PasswordChecks:
    def __init__(self, metadata: Metadata, threads: FairThreads, made_up: MadeUpCredentials) -> None:
        self._metadata = metadata
        self._threads = threads
        self._made_up = made_up

    async def verdict(self, asked: CheckPassword, host: str, is_wanted: Callable[[], bool]) -> Verdict | None:
        """`host`: where the client is. `is_wanted`: whether the password is still to be checked when its turn
        has come; if not, there is no verdict."""
        users = self._metadata.image.users
        user = users.get(asked.user)
        known = None if user is None else password_credential(user)
        mechanism, against = known or self._made_up.password_credential(asked.user, users)

        def matches() -> bool:
            salted = mechanism.salted_password(asked.password, against.salt, against.iterations)
            return hmac.compare_digest(mechanism.stored_key(salted), against.stored_key)

        matched = await self._threads.run(host, asked.user, is_wanted, matches)
        if matched is None:
            return None
        # Asked for again: the user may have been deleted, or have got another password, while this waited.
        now = self._metadata.image.users.get(asked.user)
        if known is not None and (now is None or password_credential(now) != known):
            return Rejected(reason="the password was changed while it was checked", user=asked.user)
        if matched and known is not None:
            return Accepted(user=asked.user)
        return Rejected(reason="wrong password" if known else "no such user", user=asked.user)

    def close(self) -> None:
        self._threads.close()
