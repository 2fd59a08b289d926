"""OAUTHBEARER (RFC 7628): the client presents a token, which somebody else has signed.

A refusal takes two steps: the server says why in a JSON text, the client acknowledges that with one byte, and
only then does the login fail.
"""

from __future__ import annotations

import re

from forebay.core.security.sasl.exchange import Accepted, Challenge, CheckToken, Rejected, Step, Verdict

_MESSAGE = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01")
_TOKEN = re.compile(r"[Bb]earer +(?P<token>[A-Za-z0-9._~+/=-]+)")
_REFUSAL = b'{"status":"invalid_token"}'


class BearerExchange:
    def __init__(self) -> None:
        self._authzid = ""
        self._rejected: Rejected | None = None

    def step(self, data: bytes) -> Step:
        if self._rejected is not None:
            return self._rejected
        try:
            match = _MESSAGE.fullmatch(bytes(data).decode())
        except UnicodeDecodeError:
            match = None
        if match is None:
            return Rejected(reason="the OAUTHBEARER message cannot be read")
        pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01")[:-1])
        token = _TOKEN.fullmatch(pairs.get("auth", ""))
        if token is None:
            return Rejected(reason="the OAUTHBEARER message has no bearer token")
        self._authzid = match["authzid"] or ""
        return CheckToken(token=token["token"])

    def resolve(self, verdict: Verdict) -> Step:
        if isinstance(verdict, Accepted) and self._authzid not in ("", verdict.user):
            verdict = Rejected(reason="it asks to act as another user", user=verdict.user)
        if isinstance(verdict, Rejected):
            self._rejected = verdict
            return Challenge(data=_REFUSAL)
        return verdict
