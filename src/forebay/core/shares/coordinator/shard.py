"""The share coordinator of one partition of __share_group_state, as a state machine.

For every share partition that hashes to the partition, it keeps the state that survives a change of leaders:
the start offset, the delivery states, the epochs (`persisted_state`). Members, locks and retries are the
leader's business. `decisions` has the rules for reads and writes, and `upkeep` keeps the log short.

Operations take a ticket, the request, the client and the time, in this order, and return a Step; all share
partitions of a request must be of this shard. Only `replay` changes the persisted state.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

from forebay.config import ShareCoordinatorConfig
from forebay.core.shares.coordinator.answers import Decide, answer
from forebay.core.shares.coordinator.decisions import StateDraft, Topics
from forebay.core.shares.coordinator.persisted_state import (
    NO_LEADER,
    UNKNOWN_COUNT,
    ShareKey,
    ShareState,
    is_snapshot,
    read_key,
    replayed,
)
from forebay.core.shares.coordinator.ranges import NO_OFFSET
from forebay.core.shares.coordinator.upkeep import DeleteStateRecords, RecordOffsets, StateUpkeep
from forebay.core.step import Effect, Now, RequestInfo, StateRecord, Step, Ticket
from forebay.wire.fields import Request
from forebay.wire.messages import delete_share_group_state, write_share_group_state
from forebay.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from forebay.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    PartitionData,
)
from forebay.wire.messages.read_share_group_state import ReadShareGroupStateRequest, StateBatch
from forebay.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from forebay.wire.messages.write_share_group_state import WriteShareGroupStateRequest

__all__ = ["DeleteStateRecords", "ShareCoordinatorShard", "Topics"]


class ShareCoordinatorShard:
    def __init__(
        self,
        config: ShareCoordinatorConfig,
        *,
        topics: Topics,
        deleted: Container[bytes] = (),
        partition: int = 0,
    ) -> None:
        """`partition` is the one of __share_group_state that effects name."""
        self._config = config
        self._topics = topics
        self._states: dict[ShareKey, ShareState] = {}
        self._offsets = RecordOffsets()
        self._upkeep = StateUpkeep(config, partition, self._states, self._offsets)
        self._upkeep.deleted = deleted

    @property
    def states(self) -> Mapping[ShareKey, ShareState]:
        return MappingProxyType(self._states)

    @property
    def redundant_before(self) -> int:
        """Newer records, committed or not, replace all records before this offset."""
        return self._offsets.redundant_before

    # -- called by the runtime ---------------------------------------------------------------------------

    def replay(self, record: StateRecord) -> None:
        """The only place where the persisted state changes."""
        self._offsets.replayed(record.offset)
        key = read_key(record)
        if key is None:
            return
        state = replayed(self._states.get(key), record)
        if state is None:
            self._states.pop(key, None)
            self._offsets.forget(key)
            return
        self._states[key] = state
        if is_snapshot(record):
            self._offsets.snapshot(key, record.offset)

    def loaded(self, now: Now) -> Step:
        self._upkeep.schedule(now)
        return self._finish(self._draft(now), now)

    def tick(self, now: Now) -> Step:
        draft = self._draft(now)
        deletion = self._upkeep.run(draft, self._topics, now)
        return self._finish(draft, now, [] if deletion is None else [deletion])

    def topics_changed(self, topics: Topics, now: Now, *, deleted: Container[bytes]) -> Step:
        """`deleted`: the ids of those that were deleted.

        The states of topics that are merely missing are kept: the store may have been restored.
        """
        self._upkeep.deleted = deleted
        self._upkeep.topics_deleted(self._topics.keys() - topics.keys())
        self._topics = topics
        return self._finish(self._draft(now), now)

    # -- operations -------------------------------------------------------------------------------------

    def initialize(
        self, ticket: Ticket, request: InitializeShareGroupStateRequest, _info: RequestInfo, now: Now
    ) -> Step:
        """Begin states anew, from the given start offsets."""
        draft = self._draft(now)

        def decide(key: ShareKey, asked: PartitionData) -> dict[str, Any]:
            draft.initialize(key, asked.state_epoch, asked.start_offset)
            return {}

        return self._answer(ticket, request, decide, draft, now)

    def read(self, ticket: Ticket, request: ReadShareGroupStateRequest, _info: RequestInfo, now: Now) -> Step:
        """Return the state to the leader of a partition, and fence the leaders before it."""
        draft = self._draft(now)

        def decide(key: ShareKey, asked: Any) -> dict[str, Any]:
            state = draft.read(key, asked.leader_epoch)
            after = draft.summary(key)
            assert after is not None
            is_repeated = state.leader_epoch == asked.leader_epoch and state.is_only_read
            return {
                "state_epoch": state.state_epoch,
                "snapshot_epoch": after.snapshot_epoch,
                # A leader asks again if the first response was lost, and gets the same one.
                "previous_leader_epoch": NO_LEADER if is_repeated else state.leader_epoch,
                "written_epoch": state.written_epoch,
                "start_offset": state.start_offset,
                "state_batches": [
                    StateBatch(
                        first_offset=each.first,
                        last_offset=each.last,
                        delivery_state=each.state,
                        delivery_count=each.delivery_count,
                    )
                    for each in state.ranges
                ],
            }

        return self._answer(ticket, request, decide, draft, now)

    def write(
        self, ticket: Ticket, request: WriteShareGroupStateRequest, _info: RequestInfo, now: Now
    ) -> Step:
        """Save the delivery states of the leader that has read the state."""
        draft = self._draft(now)

        def decide(key: ShareKey, asked: write_share_group_state.PartitionData) -> dict[str, Any]:
            draft.write(key, asked)
            return {}

        return self._answer(ticket, request, decide, draft, now)

    def delete(
        self, ticket: Ticket, request: DeleteShareGroupStateRequest, _info: RequestInfo, now: Now
    ) -> Step:
        """Delete states, unless they are newer than the request. Deleting an unknown state succeeds."""
        draft = self._draft(now)

        def decide(key: ShareKey, asked: delete_share_group_state.PartitionData) -> dict[str, Any]:
            draft.delete(key, asked.state_epoch)
            return {}

        return self._answer(ticket, request, decide, draft, now)

    def read_summary(
        self, ticket: Ticket, request: ReadShareGroupStateSummaryRequest, _info: RequestInfo, now: Now
    ) -> Step:
        """Return the progress of share partitions to the coordinator of their group."""
        draft = self._draft(now)

        def decide(key: ShareKey, _asked: Any) -> dict[str, Any]:
            state = draft.summary(key)
            return {
                "state_epoch": state.state_epoch if state else 0,
                "leader_epoch": state.leader_epoch if state else NO_LEADER,
                "start_offset": state.start_offset if state else NO_OFFSET,
                "delivery_complete_count": state.complete_count if state else UNKNOWN_COUNT,
            }

        return self._answer(ticket, request, decide, draft, now)

    # -- helpers ----------------------------------------------------------------------------------------

    def _draft(self, now: Now) -> StateDraft:
        return StateDraft(self._states, self._topics, self._config.updates_per_snapshot, now)

    def _answer(self, ticket: Ticket, request: Request, decide: Decide, draft: StateDraft, now: Now) -> Step:
        response = answer(request, decide)
        step = self._finish(draft, now)
        step.reply(ticket, response)
        return step

    def _finish(self, draft: StateDraft, now: Now, effects: list[Effect] | None = None) -> Step:
        return Step(records=draft.records, effects=effects or [], deadline_ms=self._upkeep.deadline_ms(now))
