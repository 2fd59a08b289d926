"""What a user that does not exist is shown, so that nobody learns who exists.

SCRAM shows a user's salt and iterations before a login can be refused. Those of an unknown user are derived
from its name and a secret of the cluster: the same whenever they are asked for, and on all brokers, as a real
user's are. They *look* like the credentials there are: users made by different tools differ in iterations,
and in how their salts are written, so the look is drawn by lot among those of the stored users, and each is
as frequent among unknown users as among known ones.

The draw is a weighted rendezvous: another user more or less changes the look of few names only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from forebay.core.cluster.user_image import ScramCredential, UserImage
from forebay.wire.sasl.scram import ITERATIONS_DEFAULT, ScramMechanism

_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""Of the salts that Kafka's tools make: a random number as text."""


class Look(NamedTuple):
    iterations: int
    salt_bytes: int
    salt_is_text: bool


_OURS = Look(ITERATIONS_DEFAULT, 24, False)
"""Of `forebay user add`, where there is no user to look like."""


class MadeUpCredentials:
    def __init__(self, secret: bytes) -> None:
        """`secret`: the same on all brokers."""
        self._secret = secret
        self._users: Mapping[str, UserImage] = {}
        self._looks: dict[ScramMechanism, Counter[Look]] = {}
        """Of the users that were looked at last."""

    def credential(
        self, mechanism: ScramMechanism, name: str, users: Mapping[str, UserImage]
    ) -> ScramCredential:
        """`users`: those that there are."""
        look = self._draw(mechanism, name, self._looks_of(mechanism, users))
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
        if users is not self._users:
            self._users, self._looks = users, {}
        if mechanism not in self._looks:
            stored = (user.credentials.get(mechanism) for user in users.values())
            self._looks[mechanism] = Counter(_look(each) for each in stored if each is not None)
        return self._looks[mechanism]

    def _draw(self, mechanism: ScramMechanism, name: str, looks: Counter[Look]) -> Look:
        def time_of_arrival(look: Look) -> float:
            """The first of them wins, and comes sooner the more users have it."""
            number = int.from_bytes(self._derived(mechanism, f"{tuple(look)} of {name}", 7))
            return -math.log((number + 1) / (1 << 56)) / looks[look]

        return min(looks, key=time_of_arrival, default=_OURS)

    def _derived(self, mechanism: ScramMechanism, what: str, size: int) -> bytes:
        parts = range(-(-size // mechanism.key_bytes))
        found = b"".join(mechanism.mac(self._secret, b"%d %s" % (part, what.encode())) for part in parts)
        return found[:size]


def _look(credential: ScramCredential) -> Look:
    salt = credential.salt
    return Look(credential.iterations, len(salt), not salt.strip(_ALPHABET))
