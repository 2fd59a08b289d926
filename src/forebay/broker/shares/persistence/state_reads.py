"""Reads the state of a share partition when it is loaded, and compares it with the log.

The records in a state were delivered by earlier leaders, which deliver only committed records, or by this
broker before its restart. So their offsets are below the end that the log had when this broker began to lead,
and below the first message of any leader after the one that wrote the state. A loss of power or an unclean
election may break this: the log has lost messages, and new messages get their offsets. The group would never
get these, so the state is cut at that offset. The second rule detects this however many leaders and messages
there were since.

A state that was loaded in this term grows with the log, and is not compared again. A broker remembers the
names of the groups for which this is so, up to a limit. If it has forgotten some, a state that was written in
this term is treated as one of theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import field

from forebay.broker.partition.partition import Partition
from forebay.broker.shares.persistence.state_store import ShareStateStore
from forebay.core.partition.leadership import Leadership
from forebay.core.shares.coordinator.persisted_state import NO_LEADER, ShareKey
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.storage.log.leader_epochs import UNDEFINED_OFFSET
from forebay.wire.messages.read_share_group_state import PartitionResult

log = logging.getLogger(__name__)

GROUPS_MAX = 1_000
"""The most names that are remembered for one partition. Any number of groups may be used only once."""


@dataclass(slots=True, eq=False)
class _Loaded:
    """The groups whose states were loaded in one term of a partition's leader."""

    leadership: Leadership
    groups: dict[str, None] = field(default_factory=dict)
    """In the order in which they were loaded."""
    has_forgotten: bool = False

    def add(self, group_id: str) -> None:
        self.groups.pop(group_id, None)
        self.groups[group_id] = None
        if len(self.groups) > GROUPS_MAX:
            del self.groups[next(iter(self.groups))]
            self.has_forgotten = True

    def had(self, group_id: str, found: PartitionResult) -> bool:
        is_written_here = found.written_epoch == self.leadership.leader_epoch
        return group_id in self.groups or (self.has_forgotten and is_written_here)


class StateReads:
    def __init__(self, store: ShareStateStore, missing: Callable[[ShareKey], None]) -> None:
        """`missing` is called with a share partition that is unknown to the share coordinator."""
        self._store = store
        self._missing = missing
        self._loaded: dict[Partition, _Loaded] = {}

    async def read(
        self, key: ShareKey, partition: Partition, leader_epoch: int, wanted: Callable[[], bool]
    ) -> PartitionResult:
        """The state. Reading it fences earlier leaders. Raises KafkaError."""
        found = await self._read(key, leader_epoch, wanted)
        lost_from = self._lost_from(partition, key.group_id, found)
        if lost_from is None or _end_of(found) <= lost_from or not wanted():
            return found
        log.warning(
            "messages that a share group had got are lost; those that get their offsets are delivered to it",
            extra={
                "group": key.group_id,
                "partition": str(partition),
                "from": lost_from,
                "to": _end_of(found),
            },
        )
        await self._store.forget_lost(
            key, found, lost_from=lost_from, leader_epoch=leader_epoch, wanted=wanted
        )
        return await self._read(key, leader_epoch, wanted)

    def loaded(self, key: ShareKey, partition: Partition) -> None:
        """Note that the state is in use from now on."""
        if partition.leadership is not None:
            self._of(partition, partition.leadership).add(key.group_id)

    def forget_other_terms(self) -> None:
        for partition, loaded in list(self._loaded.items()):
            if partition.leadership is not loaded.leadership:
                del self._loaded[partition]

    async def _read(self, key: ShareKey, leader_epoch: int, wanted: Callable[[], bool]) -> PartitionResult:
        try:
            return await self._store.read(key, leader_epoch, wanted)
        except KafkaError as error:
            if error.code == ErrorCode.INVALID_REQUEST:
                self._missing(key)
            raise

    def _lost_from(self, partition: Partition, group_id: str, found: PartitionResult) -> int | None:
        """The offset from which on the log has other messages than those that the state covers; None if there
        is none, or if the state was loaded in this term."""
        leadership = partition.leadership
        if leadership is None or self._of(partition, leadership).had(group_id, found):
            return None
        end_before = leadership.start_offset
        # No leader writes the offset that an administrator has chosen; leaders read it.
        epochs = (found.written_epoch, found.previous_leader_epoch)
        ends = (partition.end_of_epoch(epoch, end_before)[1] for epoch in epochs)
        return min([end_before, *(end for end in ends if end != UNDEFINED_OFFSET)])

    def _of(self, partition: Partition, leadership: Leadership) -> _Loaded:
        known = self._loaded.get(partition)
        if known is None or known.leadership is not leadership:
            known = self._loaded[partition] = _Loaded(leadership)
        return known


def _end_of(found: PartitionResult) -> int:
    """The offset after the last one that a state covers. A state that no leader has read yet covers none: an
    administrator may have chosen an offset of this term."""
    if found.previous_leader_epoch == NO_LEADER or found.snapshot_epoch < 0:
        return 0
    return max([found.start_offset, *(batch.last_offset + 1 for batch in found.state_batches)])
