"""Credentials for users that do not exist, so that nobody learns which users exist.

SCRAM shows a user's salt and iterations before a login can be refused. Those of an unknown user are derived
from its name and a secret of the cluster: they are the same each time and on all brokers, as for a real user.
They *look* like existing credentials: users made by different tools differ in iterations, and in the form of
their salts. So the look is drawn at random from those of the stored users, and each is as frequent among
unknown users as among known ones.

The draw is a weighted rendezvous hash: adding or removing a user changes the look of few names only.

With PLAIN, a password is checked against one credential of its user. The time for that depends on its hash
and iterations, so those of unknown users are drawn in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from forebay.core.cluster.images.user_image import ScramCredential, UserImage
from forebay.wire.sasl.scram import ITERATIONS_DEFAULT, ScramMechanism

_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""The alphabet of the salts that Kafka's tools make: a random number as text."""


class Look(NamedTuple):
    iterations: int
    salt_bytes: int
    salt_is_text: bool


_OURS = Look(ITERATIONS_DEFAULT, 24, False)
"""The look of `forebay user add`, for a cluster without users."""
_PREFERRED = (ScramMechanism.SHA_512, ScramMechanism.SHA_256)


class _PasswordLook(NamedTuple):
    """The look of the credential that a password is checked against."""

    mechanism: str
    look: Look


L = TypeVar("L", Look, _PasswordLook)


def password_credential(user: UserImage) -> tuple[ScramMechanism, ScramCredential] | None:
    """The credential that a user's password is checked against."""
    found = ((mechanism, user.credentials.get(mechanism)) for mechanism in _PREFERRED)
    return next(((mechanism, each) for mechanism, each in found if each is not None), None)


class MadeUpCredentials:
    def __init__(self, secret: bytes) -> None:
        """`secret`: the same on all brokers."""
        self._secret = secret
        self._users: Mapping[str, UserImage] = {}
        self._looks: dict[ScramMechanism, Counter[Look]] = {}
        self._password_looks: Counter[_PasswordLook] | None = None
        """The looks of the users that were seen last."""

    def credential(
        self, mechanism: ScramMechanism, name: str, users: Mapping[str, UserImage]
    ) -> ScramCredential:
        """`users`: the existing users."""
        looks = self._looks_of(mechanism, users)
        return self._made_up(mechanism, name, self._draw(mechanism, name, looks, _OURS))

    def password_credential(
        self, name: str, users: Mapping[str, UserImage]
    ) -> tuple[ScramMechanism, ScramCredential]:
        """The credential that the password of an unknown user is checked against, in vain."""
        self._see(users)
        if self._password_looks is None:
            found = (password_credential(user) for user in users.values())
            self._password_looks = Counter(
                _PasswordLook(each[0].name, _look(each[1])) for each in found if each is not None
            )
        ours = _PasswordLook(_PREFERRED[0].name, _OURS)
        drawn = self._draw(_PREFERRED[0], name, self._password_looks, ours)
        mechanism = ScramMechanism[drawn.mechanism]
        return mechanism, self._made_up(mechanism, name, drawn.look)

    def _made_up(self, mechanism: ScramMechanism, name: str, look: Look) -> ScramCredential:
        salt = self._derived(mechanism, f"salt of {name}", look.salt_bytes)
        if look.salt_is_text:
            salt = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in salt)
        return ScramCredential(
            salt=salt,
            stored_key=mechanism.mac(self._secret, b"key of " + name.encode()),
            server_key=b"",
            iterations=look.iterations,
        )

    def _looks_of(self, mechanism: ScramMechanism, users: Mapping[str, UserImage]) -> Counter[Look]:
        self._see(users)
        if mechanism not in self._looks:
            stored = (user.credentials.get(mechanism) for user in users.values())
            self._looks[mechanism] = Counter(_look(each) for each in stored if each is not None)
        return self._looks[mechanism]

    def _see(self, users: Mapping[str, UserImage]) -> None:
        if users is not self._users:
            self._users, self._looks, self._password_looks = users, {}, None

    def _draw(self, mechanism: ScramMechanism, name: str, looks: Counter[L], default: L) -> L:
        def time_of_arrival(look: L) -> float:
            """The earliest wins; a look comes earlier the more users have it."""
            number = int.from_bytes(self._derived(mechanism, f"{tuple(look)} of {name}", 7))
            return -math.log((number + 1) / (1 << 56)) / looks[look]

        return min(looks, key=time_of_arrival, default=default)

    def _derived(self, mechanism: ScramMechanism, what: str, size: int) -> bytes:
        parts = range(-(-size // mechanism.key_bytes))
        found = b"".join(mechanism.mac(self._secret, b"%d %s" % (part, what.encode())) for part in parts)
        return found[:size]


def _look(credential: ScramCredential) -> Look:
    salt = credential.salt
    return Look(credential.iterations, len(salt), not salt.strip(_ALPHABET))
