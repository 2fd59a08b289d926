"""The lease that this broker holds at the moment, and whether it may rely on it."""

from __future__ import annotations

from forebay.coordination.store import Lease


class HeldLease:
    """Written by `Membership`; all other parts only read it."""

    __slots__ = ("current", "epoch", "seen", "store_refused")

    def __init__(self) -> None:
        self.current: Lease | None = None
        self.epoch = -1
        """The broker epoch: larger with every registration."""
        self.seen = False
        """True while the image shows the registration under the lease."""
        self.store_refused = False
        """True while another store answers than the one that has granted it (`Metadata.refused`)."""

    def valid(self) -> bool:
        """True while this broker is sure that no other broker counts it as dead, or did before its image
        says so."""
        return self.seen and not self.store_refused and self.current is not None and self.current.valid()

    def doubt_store(self, refused: object | None) -> None:
        """Believe nothing that the store answers, for this reason. None: it is the right store again."""
        self.store_refused = refused is not None
