"""Users as they are stored: with the keys that verify their SCRAM logins, and without passwords."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from forebay.lazy import dataclass
from forebay.wire.sasl.scram import ScramMechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserImage:
    name: str
    credentials: Mapping[ScramMechanism, ScramCredential]
    """Never empty: a user without credentials does not exist."""
    revision: int = 0
    """The mod revision of the user's key; 0 while it is only planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPut:
    user: UserImage


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDeleted:
    name: str


class UsersDraft:
    """Users in the making: the map is copied when it is first written to."""

    def __init__(self, users: Mapping[str, UserImage]) -> None:
        self.users = users
        self._own: dict[str, UserImage] | None = None

    def apply(self, change: UserPut | UserDeleted) -> None:
        if self._own is None:
            self.users = self._own = dict(self.users)
        if isinstance(change, UserPut):
            self._own[change.user.name] = change.user
        else:
            self._own.pop(change.name, None)
