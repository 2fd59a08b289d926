"""A delegation token as it is stored: with the keys that verify logins, and without its secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from forebay.core.cluster.images.user_image import ScramCredential
from forebay.lazy import dataclass
from forebay.wire.sasl.scram import ScramMechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    id: str
    owner: str
    """The principal of a client that logs in with it, such as User:ada."""
    requester: str
    """The principal that created it."""
    renewers: tuple[str, ...] = ()
    issued_ms: int
    expires_ms: int
    """It is not valid from this time on, unless it is renewed before."""
    max_ms: int
    """It cannot be renewed beyond this."""
    digest: bytes = field(repr=False)
    """SHA-256 of its secret (Kafka's HMAC), by which it is found."""
    credentials: Mapping[ScramMechanism, ScramCredential]
    revision: int = 0
    """The mod revision of the token's key; 0 while it is only planned."""

    @property
    def owner_name(self) -> str:
        return self.owner.partition(":")[2]

    def belongs_to(self, principal: str) -> bool:
        """True for its owner, its creator and its renewers."""
        return principal in (self.owner, self.requester) or principal in self.renewers
