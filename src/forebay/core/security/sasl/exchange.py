"""What the mechanisms have in common: a message of the client comes in, a step goes out.

A mechanism that needs something which takes time (a slow hash, keys that are fetched) returns a check. The
shell carries it out and gives the verdict to `resolve`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The login goes on: the client has to answer this."""

    data: bytes
    user: str = ""
    """Who the client says to be, if it came to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    user: str
    data: bytes = b""
    """The last message to the client."""
    expires_ms: int | None = None
    """When what it has shown is no longer valid."""
    token_id: str = ""
    """Of the delegation token that it has logged in with; empty for any other login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    reason: str
    """For the broker's log, without secrets. The client gets the same text whatever the reason."""
    user: str = ""
    """Who the client says to be, if it came to that."""
    wait_ms: int = 0
    """It was not looked at: there were too many wrong logins, and the client has to wait for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPassword:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckToken:
    token: str = field(repr=False)


Verdict = Accepted | Rejected
Step = Challenge | Accepted | Rejected | CheckPassword | CheckToken


class Exchange(Protocol):
    """One login by one mechanism, from its first message on."""

    def step(self, data: bytes) -> Step: ...
    def resolve(self, verdict: Verdict, /) -> Step:
        """Go on after a check. Only called when the last step was one."""
