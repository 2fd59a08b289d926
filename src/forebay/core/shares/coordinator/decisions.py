"""The rules of the share coordinator: which requests may change the state of one share partition.

| Request    | Refused when                                           | Writes                               |
|------------|--------------------------------------------------------|--------------------------------------|
| initialize | topic unknown; state epoch lower                       | a snapshot if the epoch is higher    |
| read       | topic unknown; no state; leader epoch lower            | an update if the leader epoch is new |
| write      | topic unknown; no state; epochs not those of the state | an update if the state changes       |
| delete     | never                                                  | a tombstone if not of a higher epoch |
| summary    | topic unknown                                          | nothing                              |

After `updates_per_snapshot` updates a snapshot is written instead of the next one.

A read by a new leader is written because it fences the leader before it. A write that changes nothing is a
repetition: it needs no record, and its answer waits for the records before it like any other.

An initialization with the state epoch that the state has already is a repetition, too: undoing what was done
since would deliver records again or skip them. Kafka begins anew if the start offset differs. A deletion
names the epoch of the group, too, in a field that Kafka does not have. So a late deletion does not delete a
state that was initialized since.

Only one request takes delivery states back: a leader whose log has lost messages, for example by a loss of
power, removes their delivery states (`lost_from`). New messages get their offsets, and have to be delivered.
The leader names the snapshot that it has read. So a request that comes late, or twice, removes nothing newer.

The state of a deleted topic can be deleted; Kafka refuses that. Deleting an unknown state succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.core.shares.coordinator.persisted_state import (
    UNKNOWN_COUNT,
    Change,
    ShareKey,
    ShareState,
    change_of,
    changed,
    initialized,
    rewritten,
    snapshot_record,
    tombstone,
    update_record,
    without_lost,
)
from forebay.core.shares.coordinator.ranges import NO_OFFSET
from forebay.core.shares.partition.state_transitions import RecordState
from forebay.core.shares.partition.writes import StateRange
from forebay.core.step import Now, StateRecord
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.delete_share_group_state import ANY_EPOCH
from forebay.wire.messages.write_share_group_state import PartitionData, StateBatch

Topics = Mapping[bytes, int]
"""The topics of the cluster: how many partitions each has, by topic id."""

_PERSISTED_STATES = frozenset(RecordState) - {RecordState.ACQUIRED}


class StateDraft:
    """The states as they will be when the records of this step have been replayed.

    Its methods raise KafkaError with the code to answer for the one share partition.
    """

    def __init__(
        self, states: Mapping[ShareKey, ShareState], topics: Topics, updates_per_snapshot: int, now: Now
    ) -> None:
        self._states = states
        self._topics = topics
        self._updates_per_snapshot = updates_per_snapshot
        self._now = now
        self._drafted: dict[ShareKey, ShareState | None] = {}
        self.records: list[StateRecord] = []

    # -- decisions ---------------------------------------------------------------------------------------

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        _check("state epoch", state_epoch)
        _check("start offset", start_offset, NO_OFFSET)
        self._check_topic(key)
        state = self._get(key)
        if state is not None and state_epoch < state.state_epoch:
            raise _fenced_state(state, state_epoch)
        if state is not None and state_epoch == state.state_epoch:
            return
        self._snapshot(key, initialized(state, state_epoch, start_offset, self._now.wall_ms))

    def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        _check("leader epoch", leader_epoch)
        state = self._existing(key)
        if leader_epoch < state.leader_epoch:
            raise _fenced_leader(state, leader_epoch)
        if leader_epoch > state.leader_epoch:
            change = Change(leader_epoch, state.start_offset, state.complete_count)
            self._update(key, change, changed(state, change))
        return state

    def write(self, key: ShareKey, request: PartitionData) -> None:
        _check("leader epoch", request.leader_epoch)
        _check("state epoch", request.state_epoch)
        _check("start offset", request.start_offset, NO_OFFSET)
        _check("delivery complete count", request.delivery_complete_count, UNKNOWN_COUNT)
        ranges = [_checked(batch) for batch in request.state_batches]
        state = self._existing(key)
        if request.leader_epoch != state.leader_epoch:
            raise _fenced_leader(state, request.leader_epoch)
        if request.state_epoch != state.state_epoch:
            raise _fenced_state(state, request.state_epoch)
        if request.lost_from >= 0:
            self._forget_lost(key, state, request)
            return
        change = change_of(
            state,
            start_offset=request.start_offset,
            complete_count=request.delivery_complete_count,
            ranges=ranges,
        )
        after = changed(state, change)
        if after._replace(updates=state.updates) != state:
            self._update(key, change, after)

    def _forget_lost(self, key: ShareKey, state: ShareState, request: PartitionData) -> None:
        """Ignores a late request: it names an old snapshot, and messages were delivered at these offsets
        since."""
        if state.end_offset <= request.lost_from:
            return
        if request.snapshot_epoch != state.snapshot_epoch:
            raise KafkaError(
                ErrorCode.FENCED_STATE_EPOCH,
                f"the state has snapshot epoch {state.snapshot_epoch}, not {request.snapshot_epoch}",
            )
        self._snapshot(key, without_lost(state, request.lost_from, self._now.wall_ms))

    def delete(self, key: ShareKey, state_epoch: int = ANY_EPOCH) -> None:
        _check("partition", key.partition)
        state = self._get(key)
        if state is not None and (state_epoch == ANY_EPOCH or state.state_epoch <= state_epoch):
            self._drafted[key] = None
            self.records.append(tombstone(key))

    def summary(self, key: ShareKey) -> ShareState | None:
        """None if the state was never initialized."""
        self._check_topic(key)
        return self._get(key)

    def rewrite(self, key: ShareKey) -> None:
        """Write a state as it is, so that its older records can be deleted."""
        state = self._get(key)
        assert state is not None
        self._snapshot(key, rewritten(state, self._now.wall_ms))

    # -- states and records --------------------------------------------------------------------------------

    def _get(self, key: ShareKey) -> ShareState | None:
        return self._drafted[key] if key in self._drafted else self._states.get(key)

    def _existing(self, key: ShareKey) -> ShareState:
        self._check_topic(key)
        state = self._get(key)
        if state is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the state of partition {key.partition} was never initialized for group {key.group_id}",
            )
        return state

    def _check_topic(self, key: ShareKey) -> None:
        _check("partition", key.partition)
        if key.partition >= self._topics.get(key.topic_id, 0):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {key.topic_id.hex()} has no partition {key.partition}",
            )

    def _update(self, key: ShareKey, change: Change, after: ShareState) -> None:
        """Write the change, or a snapshot of the state after it when that is due."""
        if after.updates > self._updates_per_snapshot:
            self._snapshot(key, rewritten(after, self._now.wall_ms))
        else:
            self._drafted[key] = after
            self.records.append(update_record(key, after.snapshot_epoch, change))

    def _snapshot(self, key: ShareKey, state: ShareState) -> None:
        self._drafted[key] = state
        self.records.append(snapshot_record(key, state))


def _checked(batch: StateBatch) -> StateRange:
    """A range as a leader may write it."""
    first, last, state = batch.first_offset, batch.last_offset, batch.delivery_state
    if not 0 <= first <= last or state not in _PERSISTED_STATES or batch.delivery_count < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"offsets {first} to {last} cannot be in state {state} with count {batch.delivery_count}",
        )
    return StateRange(first, last, RecordState(state), batch.delivery_count)


def _check(name: str, value: int, lowest: int = 0) -> None:
    if value < lowest:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the {name} is {value}")


def _fenced_leader(state: ShareState, leader_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_LEADER_EPOCH,
        f"the state was last read in leader epoch {state.leader_epoch}, not {leader_epoch}",
    )


def _fenced_state(state: ShareState, state_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_STATE_EPOCH, f"the state is of epoch {state.state_epoch}, not {state_epoch}"
    )
