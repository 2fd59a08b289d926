"""The image's record of restores: which one was the last, and what the brokers' disks have held since.

When the store was restored to an earlier state, its leaders and in-sync sets may be wrong. Every restore has
a generation. The state of a partition says after which restore it was decided; one that was decided before
the last restore is *unsettled*: it has no leader until one is elected by comparing logs
(`replicas/restored_partitions.py`). A single partition is unsettled, too, when a replica finds that its log
is ahead of the store (`doubted`).

Brokers report their logs as *claims*. A report may take several keys, and counts when all are there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from forebay.lazy import dataclass

EPOCHS_SKIPPED = 1000
"""Leaders may have written nothing, so there may be later epochs than any replica remembers. They are
skipped."""

GENERATION_MAX = 1_000_000
"""The most restores: leader epochs, which are above `EPOCHS_SKIPPED` times that, have 32 bits."""

PartitionKey = tuple[bytes, int]
"""Topic id and index of a partition."""


def is_before_election(last_epoch: int, leader_epoch: int) -> bool:
    """True if a log that ends in an epoch has nothing of a leader that was elected after a restore."""
    return 0 <= last_epoch < leader_epoch - EPOCHS_SKIPPED // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    generation: int = 0
    """0: the store was never restored, as far as brokers have noticed."""
    id: str = ""
    """Random: distinguishes restores with the same generation, because one was undone by the other."""
    found_by: int = -1
    time_ms: int = 0
    is_readable: bool = True
    """False if the stored value cannot be read. Then no partition state is trusted, and a broker writes a new
    value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePut:
    restore: Restore


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePut:
    """There is, or was, a broker with this id."""

    id: int


class Claim(NamedTuple):
    """A replica's log of a partition, as its broker reports it."""

    epoch: int
    """The leader epoch of its last batch; -1 if it has no batch."""
    end_offset: int
    latest_epoch: int
    """The latest leader epoch that it has seen, with or without messages."""
    high_watermark: int = 0
    """Offsets below it were committed, as far as the replica knows."""
    epochs: tuple[tuple[int, int], ...] = ()
    """The last leader epochs in the log, each with its start offset; none where replicas that have the same
    messages may differ in them."""

    @property
    def is_empty(self) -> bool:
        """True if nothing was ever stored."""
        return self.end_offset == 0

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch of the batch at an offset; None if not known."""
        following = bisect_right(self.epochs, offset, key=lambda entry: entry[1])
        return self.epochs[following - 1][0] if following else None

    def has_committed(self, other: Claim) -> bool:
        """False if this log surely lacks a message that was committed as the other replica knows."""
        last = other.high_watermark - 1
        if last >= self.end_offset:
            return False
        epoch, own = other.epoch_at(last), self.epoch_at(last)
        return epoch is None or own is None or own == epoch

    @property
    def is_unknown(self) -> bool:
        """True if there is a log that cannot be read."""
        return self.end_offset < 0


UNKNOWN = Claim(-1, -1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsPart:
    """One key of a report."""

    node: int
    number: int
    parts: int
    """The number of keys of the report."""
    generation: int
    """The restore after which the report was made."""
    broker_epoch: int
    """The registration under which the report was made. Keys of an earlier process may outlive it until their
    lease ends, and say nothing about a disk that has lost power since, or was replaced."""
    claims: Mapping[PartitionKey, Claim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsPut:
    part: ClaimsPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsDeleted:
    node: int
    number: int


ClaimKey = tuple[int, int]


class ClaimsDraft:
    """Claims in the making: the map is copied when it is first written to."""

    def __init__(self, claims: Mapping[ClaimKey, ClaimsPart]) -> None:
        self.claims = claims
        self._own: dict[ClaimKey, ClaimsPart] | None = None

    def apply(self, change: ClaimsPut | ClaimsDeleted) -> None:
        if self._own is None:
            self.claims = self._own = dict(self.claims)
        if isinstance(change, ClaimsPut):
            self._own[change.part.node, change.part.number] = change.part
        else:
            self._own.pop((change.node, change.number), None)


def reports(
    claims: Mapping[ClaimKey, ClaimsPart], generation: int, broker_epochs: Mapping[int, int]
) -> dict[int, dict[PartitionKey, Claim]]:
    """Each broker's report since this restore; only complete reports of live brokers."""
    parts: dict[int, list[ClaimsPart]] = {}
    for part in claims.values():
        if part.generation == generation and part.broker_epoch == broker_epochs.get(part.node):
            parts.setdefault(part.node, []).append(part)
    return {
        node: {key: claim for part in found for key, claim in part.claims.items()}
        for node, found in parts.items()
        if {part.number for part in found} >= set(range(max(part.parts for part in found)))
    }
