"""The lease that this broker holds at the moment, and whether it may rely on it."""

from __future__ import annotations

from forebay.coordination.store import Lease


class HeldLease:
    """Written by `Membership`; all other parts only read it."""

    __slots__ = ("current", "epoch", "seen")

    def __init__(self) -> None:
        self.current: Lease | None = None
        self.epoch = -1
        """The broker epoch: larger with every registration."""
        self.seen = False
        """Whether the image shows the registration under the lease."""

    def valid(self) -> bool:
        """Whether this broker can be sure that no other broker counts it as dead, or did before its image
        says so."""
        return self.seen and self.current is not None and self.current.valid()
