"""Attackers that guess passwords: each guess is work for the broker, and hardly any for them."""

from __future__ import annotations

import os

from forebay.wire.sasl.client import PlainLogin
from forebay.wire.sasl.scram import encoded
from support.siege.attack import Attack
from support.siege.connection import Refused, authenticate, begin_login
from support.siege.target import GOOD


class WrongPlain(Attack):
    """Half of the guesses are for a user that exists."""

    name, connections = "wrong-plain", 100

    async def once(self, number: int) -> None:
        stream = await self.enter(number)
        try:
            await begin_login(stream, "PLAIN")
            user = GOOD if number % 2 else f"user-{number}"
            self.count("guesses")
            answer = await authenticate(stream, PlainLogin(user, f"guess-{number}").first())
            assert answer.error_code, "a guess was right"
        finally:
            stream.close()


class WrongScram(Attack):
    """The proof is invented: the broker has to derive what it should have been."""

    name, connections = "wrong-scram", 100

    async def once(self, number: int) -> None:
        stream = await self.enter(number)
        try:
            await begin_login(stream, "SCRAM-SHA-256")
            user = GOOD if number % 2 else f"user-{number}"
            nonce = encoded(os.urandom(18))
            answer = await authenticate(stream, f"n,,n={user},r={nonce}".encode())
            if answer.error_code:
                raise Refused
            whole_nonce = bytes(answer.auth_bytes).split(b",")[0]
            proof = encoded(os.urandom(32)).encode()
            self.count("guesses")
            answer = await authenticate(stream, b"c=biws," + whole_nonce + b",p=" + proof)
            assert answer.error_code, "a guess was right"
        finally:
            stream.close()
