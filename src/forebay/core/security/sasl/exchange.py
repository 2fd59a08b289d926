"""The interface of the mechanisms: a message of the client comes in, a step goes out.

A mechanism that needs something slow (a hash, keys to fetch) returns a check. The shell carries it out and
passes the verdict to `resolve`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The login continues: the client has to answer this."""

    data: bytes
    user: str = ""
    """The name that the client claims, if it got that far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    user: str
    data: bytes = b""
    """The last message to the client."""
    expires_ms: int | None = None
    """When its credentials are no longer valid."""
    token_id: str = ""
    """The id of the delegation token that was used; empty for any other login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    reason: str
    """For the broker's log, without secrets. The client gets the same text whatever the reason."""
    user: str = ""
    """The name that the client claims, if it got that far."""
    wait_ms: int = 0
    """Set if the login was not checked: there were too many wrong logins, and the client has to wait."""


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
        """Continue after a check. Only called if the last step was one."""
