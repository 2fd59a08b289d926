"""The persisted state of one share partition, how it changes, and its records in the log.

A *snapshot* holds the whole state. An *update* holds the changes since then: ranges, the start offset, the
leader epoch. One function, `replayed`, reads both. A snapshot without a value (a tombstone) deletes the
state.

Two epochs guard the state. The *state epoch* is given by the group coordinator when it initializes the
state; a higher one begins anew, and none is given out twice, not even to groups of one name. The *leader
epoch* is that of the last leader that read the state. A leader may only write to what it has read, so both
epochs of a write must be those of the state. Kafka lets higher epochs pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from forebay.core.shares.coordinator.ranges import NO_OFFSET, Ranges, merge
from forebay.core.shares.partition.state_transitions import FINISHED, RecordState
from forebay.core.shares.partition.writes import StateRange
from forebay.core.step import StateRecord
from forebay.wire.state.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from forebay.wire.state.versioned import pack, unpack, version_of

NO_LEADER = -1
"""The leader epoch of a state that no leader has read since it was initialized."""
UNKNOWN_COUNT = -1

_SNAPSHOT_KEY_VERSION = ShareSnapshotKey.MIN_VERSION
_UPDATE_KEY_VERSION = ShareUpdateKey.MIN_VERSION


class ShareKey(NamedTuple):
    """Identifies a share partition: one share group on one partition."""

    group_id: str
    topic_id: bytes
    partition: int


class ShareState(NamedTuple):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    """The first offset that is not finished; NO_OFFSET while no leader has found it."""
    complete_count: int
    """The number of finished offsets from the start offset on, or UNKNOWN_COUNT."""
    created_ms: int
    written_ms: int
    """The time of the last snapshot."""
    ranges: Ranges
    updates: int = 0
    """The number of updates since the last snapshot."""
    written_epoch: int = NO_LEADER
    """The epoch of the last leader that wrote to the state. A leader that has only read it may not have
    checked yet if its log still has the messages."""

    @property
    def end_offset(self) -> int:
        """The offset after the last one that the state covers."""
        return max(self.start_offset, self.ranges[-1].last + 1 if self.ranges else 0)

    @property
    def is_only_read(self) -> bool:
        """True if one leader has read the state since it was initialized, and has written nothing yet."""
        return self.updates == 1 and self.written_ms == self.created_ms and not self.ranges


class Change(NamedTuple):
    """The contents of an update."""

    leader_epoch: int
    start_offset: int
    complete_count: int
    ranges: Ranges = ()


# -- how the state changes ---------------------------------------------------------------------------------


def initialized(before: ShareState | None, state_epoch: int, start_offset: int, now_ms: int) -> ShareState:
    """A new state, which takes over nothing of the one before."""
    return ShareState(
        snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=NO_LEADER,
        start_offset=start_offset,
        complete_count=UNKNOWN_COUNT if start_offset == NO_OFFSET else 0,
        created_ms=now_ms,
        written_ms=now_ms,
        ranges=(),
    )


def change_of(
    state: ShareState, *, start_offset: int, complete_count: int, ranges: Iterable[StateRange]
) -> Change:
    """The change that a write of the leader makes. The start offset never goes back; NO_OFFSET keeps it.

    The count belongs to a start offset. A count for an earlier start offset is outdated. Of two counts for
    the same start offset the higher one is newer.
    """
    if start_offset in (NO_OFFSET, state.start_offset):
        complete_count = max(complete_count, state.complete_count)
    elif start_offset < state.start_offset:
        complete_count = state.complete_count
    start_offset = max(start_offset, state.start_offset)
    return Change(state.leader_epoch, start_offset, complete_count, merge((), ranges, start_offset))


def changed(state: ShareState, change: Change) -> ShareState:
    """The state after one more update."""
    start_offset = state.start_offset if change.start_offset == NO_OFFSET else change.start_offset
    leader_epoch = state.leader_epoch if change.leader_epoch == NO_LEADER else change.leader_epoch
    ranges = merge(state.ranges, change.ranges, start_offset)
    content = start_offset, change.complete_count, ranges
    is_written = content != (state.start_offset, state.complete_count, state.ranges)
    return state._replace(
        leader_epoch=leader_epoch,
        written_epoch=leader_epoch if is_written else state.written_epoch,
        start_offset=start_offset,
        complete_count=change.complete_count,
        ranges=ranges,
        updates=state.updates + 1,
    )


def rewritten(state: ShareState, now_ms: int) -> ShareState:
    """The same state as a new snapshot, which makes all records before it redundant."""
    return state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms, updates=0)


def without_lost(state: ShareState, lost_from: int, now_ms: int) -> ShareState:
    """The state as a new snapshot, without the offsets that the log has lost: new messages will get them."""
    ranges = tuple(
        each._replace(last=min(each.last, lost_from - 1)) for each in state.ranges if each.first < lost_from
    )
    finished = sum(each.last - each.first + 1 for each in ranges if each.state in FINISHED)
    start_offset = min(state.start_offset, lost_from)
    return rewritten(
        state._replace(start_offset=start_offset, complete_count=finished, ranges=ranges), now_ms
    )


# -- records -----------------------------------------------------------------------------------------------


def read_key(record: StateRecord) -> ShareKey | None:
    """The share partition of a record; None for a record of an unknown kind."""
    version = version_of(record.key)
    if version not in (_SNAPSHOT_KEY_VERSION, _UPDATE_KEY_VERSION):
        return None
    is_update = version == _UPDATE_KEY_VERSION
    key = unpack(ShareUpdateKey, record.key) if is_update else unpack(ShareSnapshotKey, record.key)
    return ShareKey(key.group_id, key.topic_id, key.partition)


def is_snapshot(record: StateRecord) -> bool:
    """True if this record replaces all earlier records of its share partition."""
    return version_of(record.key) == _SNAPSHOT_KEY_VERSION


def replayed(state: ShareState | None, record: StateRecord) -> ShareState | None:
    """The state of a share partition after a record about it; None if there is none.

    An update without a state is one whose snapshot has been deleted from the log: a newer snapshot follows.
    """
    if is_snapshot(record):
        return None if record.value is None else _snapshot(unpack(ShareSnapshotValue, record.value))
    if state is None or record.value is None:
        return state
    return changed(state, _change(unpack(ShareUpdateValue, record.value)))


def snapshot_record(key: ShareKey, state: ShareState) -> StateRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp_ms=state.created_ms,
        write_timestamp_ms=state.written_ms,
        written_epoch=state.written_epoch,
        state_batches=_batches(state.ranges),
    )
    return StateRecord(_snapshot_key(key), pack(value, 0))


def update_record(key: ShareKey, snapshot_epoch: int, change: Change) -> StateRecord:
    update_key = ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    value = ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.complete_count,
        state_batches=_batches(change.ranges),
    )
    return StateRecord(pack(update_key, _UPDATE_KEY_VERSION), pack(value, 0))


def tombstone(key: ShareKey) -> StateRecord:
    return StateRecord(_snapshot_key(key), None)


def _snapshot_key(key: ShareKey) -> bytes:
    snapshot_key = ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return pack(snapshot_key, _SNAPSHOT_KEY_VERSION)


def _snapshot(value: ShareSnapshotValue) -> ShareState:
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        complete_count=value.delivery_complete_count,
        created_ms=value.create_timestamp_ms,
        written_ms=value.write_timestamp_ms,
        written_epoch=value.written_epoch,
        ranges=_ranges(value.state_batches),
    )


def _change(value: ShareUpdateValue) -> Change:
    return Change(
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        _ranges(value.state_batches),
    )


def _batches(ranges: Ranges) -> list[StateBatch]:
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in ranges
    ]


def _ranges(batches: Iterable[StateBatch]) -> Ranges:
    return tuple(
        StateRange(
            batch.first_offset, batch.last_offset, RecordState(batch.delivery_state), batch.delivery_count
        )
        for batch in batches
    )
