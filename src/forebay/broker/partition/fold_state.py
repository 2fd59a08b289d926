"""The fold of a partition, as the partition itself knows it while it is closed to new messages.

`core/cluster/topics/fewer_partitions.py` says what a fold is.
"""

from __future__ import annotations

from forebay.config.keys.storage import StorageConfig
from forebay.lazy import dataclass


@dataclass(slots=True, kw_only=True)
class FoldedInto:
    leader_epoch: int
    """The term in which its end was looked at."""
    end_offset: int
    """Where its log ended when this term found it closed. Below it is all that clients have written."""
    index: int = -1
    """The partition of the same topic that takes the messages sent for this one."""
    generation: int | None = None
    """Of the fold: the aliases of its producers tell it."""
    is_returning: bool = False
    """It takes messages again as soon as it has gathered the numbers of their producers. Until then it passes
    nothing on."""
    revision: int = 0
    """Of the topic's record that says so."""
    closed_ms: int = 0
    """When it was closed, in wall time."""
    is_over: bool = False
    """True if its producers' state counts no more: the other partition may have forgotten one that it
    has heard from since, and then the producer may go on with any number."""
    drop_ms: int | None = None
    """When it goes with whatever it holds; None: when it is empty."""
    is_copied: bool = False
    """True if its records, and those of all partitions that were folded with it, are in others now."""

    def age(self, now_ms: int, storage: StorageConfig) -> None:
        """Find out whether producers that were silent since may be forgotten before the next look.

        Another fold of the topic changes nothing in that.
        """
        expiration_ms = storage.producer_id_expiration_ms
        until_next_look_ms = min(storage.producer_id_expiration_check_interval_ms, expiration_ms // 2)
        self.is_over |= now_ms + until_next_look_ms >= self.closed_ms + expiration_ms


@dataclass(slots=True, kw_only=True)
class Hold:
    """A leader's hold on a partition whose records are copied, before it is closed for good."""

    leader_epoch: int
    """The term in which it holds it; the next leader begins anew."""
    is_full: bool
    """True if it takes no batch at all. If not, it takes all but those that begin a transaction."""
    is_final: bool = False
    """True if the topic's record may say by now that it is closed: the hold is not given up any more."""


def takes_nothing(fold: FoldedInto | None, hold: Hold | None) -> bool:
    """True if no batch of a client is appended: the partition is closed, or about to be."""
    return fold is not None or (hold is not None and hold.is_full)
