"""Reading the state of a share partition when it is loaded, and holding it against the log.

What a state says was delivered by earlier leaders, which had nothing but what is committed, or by this broker
before it was restarted. So all of it lies before where the log ended when this broker began to lead, and
before the first message of a later leader than the last one that wrote the state. Unless the log has lost
messages, as a loss of power or an unclean election makes it. Then others get their offsets, which the group
would never be given: what the state says from there on is forgotten. By the second rule that is noticed
however many leaders, and messages, there were since.

Once a state was loaded, it grows with the log, and there is nothing to be held against it in this term. A
broker remembers the names of the groups for which that is so, but not of any number of them. If it has
forgotten some, a state that was written in this term is taken for one of theirs.
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
"""Names that are remembered of one partition. There may be any number of groups that are used once."""


@dataclass(slots=True, eq=False)
class _Loaded:
    """The groups whose states were loaded in one term of a partition's leader."""

    leadership: Leadership
    groups: dict[str, None] = field(default_factory=dict)
    """The one that was loaded last is the last."""
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
        """`missing` is called with a share partition of which the share coordinator knows nothing."""
        self._store = store
        self._missing = missing
        self._loaded: dict[Partition, _Loaded] = {}

    async def read(
        self, key: ShareKey, partition: Partition, leader_epoch: int, wanted: Callable[[], bool]
    ) -> PartitionResult:
        """The state, for a leader that fences those before it. Raises KafkaError."""
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
        """What was read is in use from now on."""
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
        """From which offset on the log has other messages than a state is about, if that says anything from
        there on; None if it was loaded in this term."""
        leadership = partition.leadership
        if leadership is None or self._of(partition, leadership).had(group_id, found):
            return None
        end_before = leadership.start_offset
        # What was chosen by an administrator is written by no leader, and read by some.
        epochs = (found.written_epoch, found.previous_leader_epoch)
        ends = (partition.epochs.end_offset_for(epoch, end_before)[1] for epoch in epochs)
        return min([end_before, *(end for end in ends if end != UNDEFINED_OFFSET)])

    def _of(self, partition: Partition, leadership: Leadership) -> _Loaded:
        known = self._loaded.get(partition)
        if known is None or known.leadership is not leadership:
            known = self._loaded[partition] = _Loaded(leadership)
        return known


def _end_of(found: PartitionResult) -> int:
    """Behind the last offset that a state says anything of. One that no leader has read yet says nothing: an
    administrator may have chosen an offset of this term."""
    if found.previous_leader_epoch == NO_LEADER or found.snapshot_epoch < 0:
        return 0
    return max([found.start_offset, *(batch.last_offset + 1 for batch in found.state_batches)])
