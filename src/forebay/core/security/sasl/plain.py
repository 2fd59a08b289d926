"""PLAIN (RFC 4616): the client sends name and password. Only for listeners with TLS."""

from __future__ import annotations

from forebay.core.security.sasl.exchange import CheckPassword, Rejected, Step, Verdict

_PARTS = 3


class PlainExchange:
    def step(self, data: bytes) -> Step:
        """authzid NUL name NUL password."""
        try:
            parts = bytes(data).decode().split("\0")
        except UnicodeDecodeError:
            return Rejected(reason="the PLAIN message is not UTF-8")
        if len(parts) != _PARTS:
            return Rejected(reason="the PLAIN message does not have three parts")
        authzid, user, password = parts
        if not user or not password:
            return Rejected(reason="the name or the password is empty", user=user)
        if authzid not in ("", user):
            return Rejected(reason="it asks to act as another user", user=user)
        return CheckPassword(user=user, password=password)

    def resolve(self, verdict: Verdict) -> Step:
        return verdict
