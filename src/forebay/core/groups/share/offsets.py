"""Administrators' requests to a share group: to set its offsets, to forget topics, to be deleted.

All of them change the state at share coordinators, so a request waits for their reports. The group must be
empty: members that join meanwhile wait as well. After an error an administrator does not know what was done;
a deletion continues until it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.core.groups.assigned_partitions import TopicPartition
from forebay.core.groups.group import Context
from forebay.core.groups.share.effects import UNINITIALIZED_OFFSET, ShareStart
from forebay.core.groups.share.heartbeat import ShareMembers
from forebay.core.groups.share.partition_states import DELETED, Results
from forebay.core.groups.share.state import Draft
from forebay.core.step import Now, Step, Ticket
from forebay.errors import ErrorCode
from forebay.lazy import dataclass
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from forebay.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

_NO_TOPIC = bytes(16)


@dataclass(slots=True)
class Alteration:
    """A waiting AlterShareGroupOffsets."""

    ticket: Ticket
    state_epoch: int
    response: AlterShareGroupOffsetsResponse
    pending: dict[TopicPartition, AlterShareGroupOffsetsResponsePartition]


@dataclass(slots=True)
class Deletion:
    """A waiting DeleteShareGroupOffsets."""

    ticket: Ticket
    response: DeleteShareGroupOffsetsResponse
    pending: dict[bytes, DeleteShareGroupOffsetsResponseTopic]


class ShareGroup(ShareMembers):
    def __init__(self, group_id: str, context: Context) -> None:
        super().__init__(group_id, context)
        self._alterations: list[Alteration] = []
        self._deletions_awaited: list[Deletion] = []
        self._is_being_removed = False
        self.removal_outcome: ErrorCode | None = None
        """The outcome of the group's deletion that was under way; the shard takes it."""

    # -- beginning elsewhere -------------------------------------------------------------------------

    def alter_offsets(self, ticket: Ticket, request: AlterShareGroupOffsetsRequest, now: Now) -> Step:
        """Set offsets. The group is empty."""
        step = Step()
        draft = Draft(self.group_id, self.state)
        self.raise_epoch(draft)
        alteration = Alteration(ticket, draft.state.epoch, AlterShareGroupOffsetsResponse(), {})
        starts = [
            start
            for topic in request.topics
            for start in self._altered(alteration, topic.topic_name, topic.partitions)
        ]
        if starts:
            self._alterations.append(alteration)
            self.begin_initializing(draft, step, starts, now)
        else:
            step.reply(ticket, alteration.response)
        step.records = draft.records
        return step

    def _altered(
        self, alteration: Alteration, name: str, partitions: list[AlterShareGroupOffsetsRequestPartition]
    ) -> Iterator[ShareStart]:
        """The partitions of a topic to initialize; the others are answered."""
        info = self.context.logs.get(name)
        answer = AlterShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=_NO_TOPIC if info is None else info.topic_id
        )
        alteration.response.responses.append(answer)
        for asked in {partition.partition_index: partition for partition in partitions}.values():
            result = AlterShareGroupOffsetsResponsePartition(partition_index=asked.partition_index)
            result.error_code = self._check_altered(name, asked)
            answer.partitions.append(result)
            if result.error_code != ErrorCode.NONE:
                result.error_message = _REFUSALS.get(result.error_code)
            elif info is not None:
                alteration.pending[info.topic_id, asked.partition_index] = result
                yield ShareStart(info.topic_id, asked.partition_index, asked.start_offset)

    def _check_altered(self, name: str, asked: AlterShareGroupOffsetsRequestPartition) -> ErrorCode:
        if not self.context.has_partition(name, asked.partition_index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if asked.start_offset < UNINITIALIZED_OFFSET:
            return ErrorCode.INVALID_REQUEST
        topic = self.state.topics.get(self.context.logs[name].topic_id)
        is_deleting = topic is not None and topic.deleting
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_deleting else ErrorCode.NONE

    def initialize_again(self, partitions: Iterable[TopicPartition], now: Now) -> Step:
        """Initialize partitions that a share coordinator has lost. Everything is delivered again."""
        starts = [
            ShareStart(topic_id, index, 0)
            for topic_id, index in partitions
            if (topic := self.state.topics.get(topic_id)) is not None
            and index in topic.initialized
            and not topic.deleting
        ]
        step = Step()
        if starts:
            draft = Draft(self.group_id, self.state)
            self.raise_epoch(draft)
            self.begin_initializing(draft, step, starts, now)
            step.records = draft.records
        return step

    def partitions_initialized(self, state_epoch: int, results: Results, now: Now) -> Step:
        step = Step()
        draft = Draft(self.group_id, self.state)
        self.note_initialized(draft, step, state_epoch, results, now)
        for alteration in [each for each in self._alterations if each.state_epoch == state_epoch]:
            for partition, code in results.items():
                result = alteration.pending.pop(partition, None)
                if result is not None:
                    result.error_code = code
            if not alteration.pending:
                self._alterations.remove(alteration)
                step.reply(alteration.ticket, alteration.response)
        self.answer_waiting(draft, step, now)
        step.records = draft.records
        return step

    # -- forgetting ----------------------------------------------------------------------------------

    def delete_offsets(self, ticket: Ticket, request: DeleteShareGroupOffsetsRequest, now: Now) -> Step:
        """Delete offsets. The group is empty."""
        step = Step()
        draft = Draft(self.group_id, self.state)
        deletion = Deletion(ticket, DeleteShareGroupOffsetsResponse(), {})
        for name in dict.fromkeys(topic.topic_name for topic in request.topics):
            info = self.context.logs.get(name)
            result = DeleteShareGroupOffsetsResponseTopic(topic_name=name)
            deletion.response.responses.append(result)
            if info is None or info.topic_id not in self.state.topics:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result.error_message = (
                    "there is no such topic" if info is None else "there is nothing to delete"
                )
            else:
                result.topic_id = info.topic_id
                deletion.pending[info.topic_id] = result
        if deletion.pending:
            self._deletions_awaited.append(deletion)
            self.delete_states(draft, step, deletion.pending, now)
        else:
            step.reply(ticket, deletion.response)
        step.records = draft.records
        return step

    def begin_removal(self, step: Step, now: Now) -> ErrorCode | None:
        """Delete the group, its states first; None while that is under way."""
        if not self.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        draft = Draft(self.group_id, self.state)
        if self.state.topics:
            self._is_being_removed = True
            self.delete_states(draft, step, list(self.state.topics), now)
        else:
            self.delete(draft)
        step.records += draft.records
        return None if self._is_being_removed else ErrorCode.NONE

    def partitions_deleted(self, results: Results, now: Now) -> Step:
        step = Step()
        draft = Draft(self.group_id, self.state)
        self.note_deleted(draft, results, now)
        failures = {
            topic_id: code
            for (topic_id, _), code in results.items()
            if topic_id in draft.state.topics and code not in DELETED
        }
        for deletion in list(self._deletions_awaited):
            self._note_deletion(deletion, draft, step, failures)
        self._note_removal(draft, failures)
        self.answer_waiting(draft, step, now)
        step.records = draft.records
        return step

    def _note_deletion(
        self, deletion: Deletion, draft: Draft, step: Step, failures: dict[bytes, ErrorCode]
    ) -> None:
        for topic_id, result in list(deletion.pending.items()):
            if topic_id in failures:
                result.error_code = failures[topic_id]
                result.error_message = "not all is deleted yet; it is tried again"
            if topic_id in failures or topic_id not in draft.state.topics:
                del deletion.pending[topic_id]
        if not deletion.pending:
            self._deletions_awaited.remove(deletion)
            step.reply(deletion.ticket, deletion.response)

    def _note_removal(self, draft: Draft, failures: dict[bytes, ErrorCode]) -> None:
        if not self._is_being_removed:
            return
        if failures:
            self.removal_outcome = next(iter(failures.values()))
        elif not draft.state.topics:
            self.removal_outcome = ErrorCode.NONE
        self._is_being_removed = self.removal_outcome is None
        # Members that have joined meanwhile were assigned nothing yet: they make the group anew.
        if self.removal_outcome == ErrorCode.NONE and not draft.state.members:
            self.delete(draft)

    def take_removal_outcome(self) -> ErrorCode | None:
        outcome, self.removal_outcome = self.removal_outcome, None
        return outcome


_REFUSALS: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.INVALID_REQUEST: "an offset is not negative; -1 is where share.auto.offset.reset says",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the offsets of this topic are just being deleted; try again",
}
