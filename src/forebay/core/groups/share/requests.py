"""A shard's requests about share groups: finds the group, and combines answers about several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from forebay.core.acls.operations import ON_GROUP, operations
from forebay.core.groups.assigned_partitions import TopicPartition
from forebay.core.groups.group import Context, Group
from forebay.core.groups.share.effects import DeleteShares, ShareSummary, SummarizeShares
from forebay.core.groups.share.heartbeat import check_heartbeat, refusal
from forebay.core.groups.share.offsets import ShareGroup
from forebay.core.groups.share.partition_states import Results
from forebay.core.step import Now, RequestInfo, Step, Ticket
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from forebay.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from forebay.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from forebay.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

_NO_TOPIC = bytes(16)


@dataclass(slots=True)
class _Description:
    """A DescribeShareGroupOffsets that is waiting for summaries."""

    response: DescribeShareGroupOffsetsResponse = field(default_factory=DescribeShareGroupOffsetsResponse)
    epochs: dict[str, int] = field(default_factory=dict)
    """The epochs of groups that were initializing nothing when the request came."""
    pending: dict[tuple[str, TopicPartition], DescribeShareGroupOffsetsResponsePartition] = field(
        default_factory=dict
    )


class ShareRequests:
    def __init__(self, context: Context, groups: dict[str, Group]) -> None:
        self._context = context
        self._groups = groups
        self._descriptions: dict[Ticket, _Description] = {}
        self._removals: dict[Ticket, dict[str, ErrorCode | None]] = {}
        """Waiting DeleteGroups requests, with the results so far; None for groups not yet deleted."""

    # -- members -------------------------------------------------------------------------------------

    def heartbeat(
        self, ticket: Ticket, request: ShareGroupHeartbeatRequest, info: RequestInfo, now: Now
    ) -> Step:
        try:
            check_heartbeat(request)
            group = self._find_or_create(request)
        except KafkaError as error:
            return Step(replies=[(ticket, refusal(error))])
        return group.share_heartbeat(ticket, request, info, now)

    def _find_or_create(self, request: ShareGroupHeartbeatRequest) -> ShareGroup:
        group = self._groups.get(request.group_id)
        if group is None and request.member_epoch != 0:
            # Kafka answers GROUP_ID_NOT_FOUND, which ends some clients; this makes them join again.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} has no such member")
        return self._share_group(request.group_id)

    def _share_group(self, group_id: str) -> ShareGroup:
        """The group, or a new one. Groups of another kind with that name stay."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ShareGroup(group_id, self._context)
        if not isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} is not a share group")
        return group

    def describe(self, ticket: Ticket, request: ShareGroupDescribeRequest) -> Step:
        allowed = operations(ON_GROUP, asked=request.include_authorized_operations)
        groups = [self._described(group_id, allowed) for group_id in request.group_ids]
        return Step(replies=[(ticket, ShareGroupDescribeResponse(groups=groups))])

    def _described(self, group_id: str, allowed: int) -> DescribedGroup:
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group.described(allowed)
        wrong = "not found" if group is None else "is not a share group"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {wrong}.",
        )

    # -- offsets -------------------------------------------------------------------------------------

    def alter_offsets(self, ticket: Ticket, request: AlterShareGroupOffsetsRequest, now: Now) -> Step:
        error = self._check_empty(request.group_id, may_be_new=True)
        if error is not None:
            response = AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
            return Step(replies=[(ticket, response)])
        return self._share_group(request.group_id).alter_offsets(ticket, request, now)

    def delete_offsets(self, ticket: Ticket, request: DeleteShareGroupOffsetsRequest, now: Now) -> Step:
        error = self._check_empty(request.group_id, may_be_new=False)
        if error is not None:
            response = DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
            return Step(replies=[(ticket, response)])
        return self._share_group(request.group_id).delete_offsets(ticket, request, now)

    def _check_empty(self, group_id: str, *, may_be_new: bool) -> KafkaError | None:
        group = self._groups.get(group_id)
        if not group_id:
            return KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        if not isinstance(group, ShareGroup) and not (group is None and may_be_new):
            return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} is not a share group")
        if group is not None and not group.is_empty:
            return KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members")
        return None

    def describe_offsets(self, ticket: Ticket, request: DescribeShareGroupOffsetsRequest) -> Step:
        step = Step()
        description = _Description()
        for asked in request.groups:
            group = self._groups.get(asked.group_id)
            share_group = group if isinstance(group, ShareGroup) else None
            self._describe_offsets(description, share_group, asked)
            wanted = [partition for group_id, partition in description.pending if group_id == asked.group_id]
            if wanted:
                step.effects.append(
                    SummarizeShares(ticket=ticket, group_id=asked.group_id, partitions=tuple(wanted))
                )
        if description.pending:
            self._descriptions[ticket] = description
        else:
            step.reply(ticket, description.response)
        return step

    def _describe_offsets(
        self,
        description: _Description,
        group: ShareGroup | None,
        asked: DescribeShareGroupOffsetsRequestGroup,
    ) -> None:
        """A partition that nobody has begun with has the start offset -1, which is not an error."""
        topics = {} if group is None else group.state.topics
        if group is not None and not group.attempts:
            description.epochs[asked.group_id] = group.state.epoch
        answer = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        description.response.groups.append(answer)
        for name, partitions in self._asked_topics(group, asked).items():
            info = self._context.logs.get(name)
            topic_id = _NO_TOPIC if info is None else info.topic_id
            known = topics[topic_id].initialized if topic_id in topics else frozenset[int]()
            results = [
                DescribeShareGroupOffsetsResponsePartition(
                    partition_index=index, start_offset=-1, leader_epoch=-1
                )
                for index in partitions
            ]
            answer.topics.append(
                DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=results)
            )
            for result in results:
                if result.partition_index in known:
                    key = (asked.group_id, (topic_id, result.partition_index))
                    description.pending[key] = result

    def _asked_topics(
        self, group: ShareGroup | None, asked: DescribeShareGroupOffsetsRequestGroup
    ) -> dict[str, list[int]]:
        if asked.topics is not None:
            return {topic.topic_name: list(dict.fromkeys(topic.partitions)) for topic in asked.topics}
        names = self._context.names
        topics = {} if group is None else group.state.topics
        return {
            names[topic_id]: sorted(topic.initialized)
            for topic_id, topic in topics.items()
            if topic_id in names and topic.initialized
        }

    # -- deleting groups -----------------------------------------------------------------------------

    def await_removals(self, ticket: Ticket, results: dict[str, ErrorCode | None], step: Step) -> None:
        """Answer a DeleteGroups when all of its groups are deleted; None: one is not deleted yet."""
        self._removals[ticket] = results
        self._answer_removals(step)

    def _answer_removals(self, step: Step) -> None:
        for ticket, results in list(self._removals.items()):
            codes = {group_id: code for group_id, code in results.items() if code is not None}
            if len(codes) == len(results):
                del self._removals[ticket]
                answers = [
                    DeletableGroupResult(group_id=group_id, error_code=code)
                    for group_id, code in codes.items()
                ]
                step.reply(ticket, DeleteGroupsResponse(results=answers))

    # -- reports of what the runtime has done --------------------------------------------------------

    def initialized(self, group_id: str, state_epoch: int, results: Results, now: Now) -> Step:
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group.partitions_initialized(state_epoch, results, now)
        useless = tuple(partition for partition, code in results.items() if code == ErrorCode.NONE)
        if not useless:
            return Step()
        return Step(effects=[DeleteShares(group_id=group_id, state_epoch=state_epoch, partitions=useless)])

    def deleted(self, group_id: str, results: Results, now: Now) -> Step:
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return Step()
        step = group.partitions_deleted(results, now)
        outcome = group.take_removal_outcome()
        if outcome is not None:
            for waiting in self._removals.values():
                if group_id in waiting and waiting[group_id] is None:
                    waiting[group_id] = outcome
            self._answer_removals(step)
        return step

    def summarized(
        self, ticket: Ticket, group_id: str, results: Mapping[TopicPartition, ShareSummary], now: Now
    ) -> Step:
        step = Step()
        description = self._descriptions.get(ticket)
        if description is None:
            return step
        for partition, summary in results.items():
            result = description.pending.pop((group_id, partition), None)
            if result is not None:
                result.start_offset = summary.shown_start
                result.leader_epoch = summary.leader_epoch
                result.lag = summary.lag
                result.error_code = summary.error_code
        missing = [partition for partition, summary in results.items() if summary.is_missing]
        group = self._groups.get(group_id)
        epoch = description.epochs.get(group_id)
        if missing and isinstance(group, ShareGroup) and group.state.epoch == epoch:
            # A partition that is initialized later gets another epoch. So it is still missing.
            step.include(group.initialize_again(missing, now))
        if not description.pending:
            del self._descriptions[ticket]
            step.reply(ticket, description.response)
        return step
