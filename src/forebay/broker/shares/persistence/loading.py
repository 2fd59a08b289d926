"""Loading a share partition: its persisted state becomes the machine that decides on its records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from forebay.broker.partition.partition import Partition
from forebay.broker.shares.persistence.state_reads import StateReads
from forebay.config import ShareGroupSettings
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.share_partition import SharePartition
from forebay.core.shares.partition.state_transitions import RecordState
from forebay.core.shares.partition.writes import StateRange, StateWrite

_NOT_RESOLVED = -1
"""The start offset of a share partition that has none yet."""

ResolveStart = Callable[[Partition, ShareGroupSettings, Callable[[], bool]], Awaitable[int]]
"""Finds the start offset of a group that is new to a partition, while the last argument returns True."""


class Share(Protocol):
    """A share partition that is being loaded."""

    key: ShareKey
    partition: Partition
    settings: ShareGroupSettings
    leader_epoch: int

    @property
    def is_current(self) -> bool:
        """True while this broker leads the partition in that epoch."""

    async def persist(self, write: StateWrite, state_epoch: int) -> None:
        """Raises KafkaError if the write is refused."""


class ShareLoading:
    def __init__(self, reads: StateReads, resolve_start: ResolveStart) -> None:
        self.reads = reads
        self._resolve_start = resolve_start

    async def load(self, share: Share) -> SharePartition | None:
        """None if this broker has stopped leading the partition meanwhile. Raises KafkaError."""
        key, partition = share.key, share.partition
        found = await self.reads.read(key, partition, share.leader_epoch, lambda: share.is_current)
        start_offset = found.start_offset
        if start_offset == _NOT_RESOLVED:
            start_offset = await self._choose_start(share, found.state_epoch)
        machine = SharePartition(
            ShareSettings.of(share.settings),
            start_offset=start_offset,
            ranges=[
                StateRange(b.first_offset, b.last_offset, RecordState(b.delivery_state), b.delivery_count)
                for b in found.state_batches
            ],
            leader_epoch=share.leader_epoch,
            state_epoch=found.state_epoch,
        )
        if not share.is_current:
            return None
        self.reads.loaded(key, partition)
        known_start = partition.known_start_offset
        if known_start is not None:
            machine.log_start(known_start)
        return machine

    async def _choose_start(self, share: Share, state_epoch: int) -> int:
        """The start offset of the group. It is persisted before the first delivery: another leader that chose
        again could begin later, and skip records that were delivered here."""
        start_offset = await self._resolve_start(share.partition, share.settings, lambda: share.is_current)
        write = StateWrite(number=0, start_offset=start_offset, ranges=[], delivery_complete_count=0)
        await share.persist(write, state_epoch)
        return start_offset
