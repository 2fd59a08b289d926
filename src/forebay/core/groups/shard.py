"""All groups of one partition of __consumer_offsets: finds the group, lets it decide, adds the deadline.

Operations take a ticket, the request, the client, and the time, in this order; they return a Step
(`core.step` explains what the runtime does with it). An operation on several groups (describe, delete, fetch)
gets those of this partition. Persistent state changes in `replay` and `end_transaction` only.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from forebay.config import GroupsConfig
from forebay.core.acls.operations import NOT_ASKED, ON_GROUP, operations
from forebay.core.groups.assigned_partitions import TopicPartition
from forebay.core.groups.classic.requests import ClassicGroup
from forebay.core.groups.consumer.heartbeat import ConsumerGroup, check_heartbeat, refusal
from forebay.core.groups.consumer.migration import leave_classic, upgraded
from forebay.core.groups.consumer.state import ConsumerState, Draft
from forebay.core.groups.failures import failure
from forebay.core.groups.group import Context, Group, SettingsOf, TopicInfo, TopicsView, Visibility
from forebay.core.groups.offset_expiration import EXPIRATION, OffsetExpiration
from forebay.core.groups.offset_requests import OffsetRequests
from forebay.core.groups.offsets import Offsets
from forebay.core.groups.replay import Replay
from forebay.core.groups.share.effects import ShareSummary
from forebay.core.groups.share.offsets import ShareGroup
from forebay.core.groups.share.partition_states import Results
from forebay.core.groups.share.requests import ShareRequests
from forebay.core.large_requests.answer_parts import present
from forebay.core.step import Now, RequestInfo, StateRecord, Step, Ticket
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import NO_PRODUCER_ID, EndTxnMarker
from forebay.wire.fields import Request
from forebay.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from forebay.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from forebay.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from forebay.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from forebay.wire.messages.delete_groups import DeleteGroupsRequest
from forebay.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from forebay.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from forebay.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from forebay.wire.messages.heartbeat import HeartbeatRequest
from forebay.wire.messages.join_group import JoinGroupRequest
from forebay.wire.messages.leave_group import LeaveGroupRequest
from forebay.wire.messages.list_groups import ListedGroup, ListGroupsRequest
from forebay.wire.messages.offset_commit import OffsetCommitRequest
from forebay.wire.messages.offset_delete import OffsetDeleteRequest
from forebay.wire.messages.offset_fetch import OffsetFetchRequest
from forebay.wire.messages.share_group_describe import ShareGroupDescribeRequest
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from forebay.wire.messages.sync_group import SyncGroupRequest
from forebay.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

__all__ = ["GroupShard", "TopicInfo", "TopicsView"]

_NOT_FOUND_FROM = 6
"""DescribeGroups reports a missing group as an error from this version on, and as Dead before."""


class GroupShard:
    def __init__(
        self,
        *,
        config: GroupsConfig,
        new_id: Callable[[], str],
        topics: TopicsView,
        deleted: Container[bytes] = (),
        settings_of: SettingsOf | None = None,
        visibility: Visibility | None = None,
    ) -> None:
        self._context = Context(config, new_id, topics, deleted, settings_of, visibility)
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._replay = Replay(self._context, self.groups, self.offsets)
        self._offset_requests = OffsetRequests(self._context, self.groups, self.offsets)
        self._share_requests = ShareRequests(self._context, self.groups)
        self.expiration = OffsetExpiration(self._context, self.offsets, self.groups)
        self._missing: TopicsView = {}
        """Topics that were there before, and of which nobody knows that they were deleted."""

    # -- membership of classic groups ----------------------------------------------------------------

    def join_group(self, ticket: Ticket, request: JoinGroupRequest, info: RequestInfo, now: Now) -> Step:
        config = self._context.config
        if not request.group_id:
            return self._fail(ticket, request, info, ErrorCode.INVALID_GROUP_ID)
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return self._fail(ticket, request, info, ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        deleted: list[StateRecord] = []
        if isinstance(group, ConsumerGroup) and group.is_empty:
            deleted, group = group.tombstones(), None  # the first member decides the type of the group
        if isinstance(group, ShareGroup):
            return self._fail(ticket, request, info, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group is None and request.member_id:
            return self._fail(ticket, request, info, ErrorCode.UNKNOWN_MEMBER_ID)
        if group is None:
            group = self.groups[request.group_id] = ClassicGroup(request.group_id, self._context)
        assert isinstance(group, ClassicGroup | ConsumerGroup)
        step = group.join(ticket, request, info, now)
        step.records[:0] = deleted
        return self._done(step, group.group_id)

    def sync_group(self, ticket: Ticket, request: SyncGroupRequest, info: RequestInfo, now: Now) -> Step:
        group = self._joined(request.group_id)
        if isinstance(group, ErrorCode):
            return self._fail(ticket, request, info, group)
        return self._done(group.sync(ticket, request, now))

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, info: RequestInfo, now: Now) -> Step:
        group = self._joined(request.group_id)
        if isinstance(group, ErrorCode):
            return self._fail(ticket, request, info, group)
        return self._done(group.heartbeat(ticket, request, now))

    def leave_group(self, ticket: Ticket, request: LeaveGroupRequest, info: RequestInfo, now: Now) -> Step:
        group = self._joined(request.group_id)
        if isinstance(group, ErrorCode):
            return self._fail(ticket, request, info, group)
        return self._done(group.leave(ticket, request, info, now), group.group_id)

    def _joined(self, group_id: str) -> ClassicGroup | ConsumerGroup | ErrorCode:
        """A group of either kind: members of both protocols may be in one group."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup | ConsumerGroup) else ErrorCode.UNKNOWN_MEMBER_ID

    # -- membership of KIP-848 groups ----------------------------------------------------------------

    def consumer_group_heartbeat(
        self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, info: RequestInfo, now: Now
    ) -> Step:
        try:
            config = self._context.config
            check_heartbeat(request, info, config.consumer_assignors, config.pattern_size_max)
            group = self.groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                step = self._become_consumer(group, ticket, request, info, now)
            else:
                step = group.consumer_heartbeat(ticket, request, info, now)
        except KafkaError as error:
            step = Step(replies=[(ticket, refusal(error))])
        return self._done(step)

    def _become_consumer(
        self,
        old: Group | None,
        ticket: Ticket,
        request: ConsumerGroupHeartbeatRequest,
        info: RequestInfo,
        now: Now,
    ) -> Step:
        """Handle the first heartbeat of a new group, or of a classic one that it converts if accepted."""
        if isinstance(old, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{request.group_id} is not a group of consumers")
        if request.member_epoch != 0:
            # Kafka answers GROUP_ID_NOT_FOUND, which ends a client; this makes it join again.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} has no such member")
        draft = upgraded(old) if isinstance(old, ClassicGroup) else Draft(request.group_id, ConsumerState())
        if draft is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{request.group_id} is not a group of consumers")
        # The group that decides here is discarded; replaying the records creates it.
        group = ConsumerGroup(request.group_id, self._context, draft.state)
        step = group.consumer_heartbeat(ticket, request, info, now)
        if step.records and isinstance(old, ClassicGroup):
            step.records[:0] = old.tombstones() + draft.records
            leave_classic(old, request.member_id, step, now)
        return step

    def consumer_group_describe(
        self, ticket: Ticket, request: ConsumerGroupDescribeRequest, _info: RequestInfo, _: Now
    ) -> Step:
        allowed = operations(ON_GROUP, asked=request.include_authorized_operations)
        groups = [self._described_consumer(group_id, allowed) for group_id in request.group_ids]
        return self._done(Step(replies=[(ticket, ConsumerGroupDescribeResponse(groups=groups))]))

    def _described_consumer(self, group_id: str, allowed: int) -> DescribedConsumerGroup:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.described(allowed)
        wrong = "not found" if group is None else "is not a consumer group"
        return DescribedConsumerGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {wrong}.",
        )

    # -- share groups --------------------------------------------------------------------------------

    def share_group_heartbeat(
        self, ticket: Ticket, request: ShareGroupHeartbeatRequest, info: RequestInfo, now: Now
    ) -> Step:
        return self._done(self._share_requests.heartbeat(ticket, request, info, now), request.group_id)

    def share_group_describe(
        self, ticket: Ticket, request: ShareGroupDescribeRequest, _info: RequestInfo, _: Now
    ) -> Step:
        return self._done(self._share_requests.describe(ticket, request))

    def describe_share_group_offsets(
        self, ticket: Ticket, request: DescribeShareGroupOffsetsRequest, _info: RequestInfo, _: Now
    ) -> Step:
        return self._done(self._share_requests.describe_offsets(ticket, request))

    def alter_share_group_offsets(
        self, ticket: Ticket, request: AlterShareGroupOffsetsRequest, _: RequestInfo, now: Now
    ) -> Step:
        return self._done(self._share_requests.alter_offsets(ticket, request, now))

    def delete_share_group_offsets(
        self, ticket: Ticket, request: DeleteShareGroupOffsetsRequest, _: RequestInfo, now: Now
    ) -> Step:
        return self._done(self._share_requests.delete_offsets(ticket, request, now))

    def share_partitions_initialized(
        self, group_id: str, state_epoch: int, results: Results, now: Now
    ) -> Step:
        """Handle the report of an `InitializeShares`, or of a part of it; see `share.effects`."""
        return self._done(self._share_requests.initialized(group_id, state_epoch, results, now))

    def share_partitions_deleted(self, group_id: str, results: Results, now: Now) -> Step:
        return self._done(self._share_requests.deleted(group_id, results, now))

    def share_partitions_summarized(
        self, ticket: Ticket, group_id: str, results: Mapping[TopicPartition, ShareSummary], now: Now
    ) -> Step:
        return self._done(self._share_requests.summarized(ticket, group_id, results, now))

    # -- offsets -------------------------------------------------------------------------------------

    def offset_commit(
        self, ticket: Ticket, request: OffsetCommitRequest, info: RequestInfo, now: Now
    ) -> Step:
        return self._done(self._offset_requests.commit(ticket, request, info, now))

    def txn_offset_commit(
        self, ticket: Ticket, request: TxnOffsetCommitRequest, info: RequestInfo, now: Now
    ) -> Step:
        return self._done(self._offset_requests.commit_in_transaction(ticket, request, info, now))

    def offset_fetch(self, ticket: Ticket, request: OffsetFetchRequest, info: RequestInfo, _: Now) -> Step:
        return self._done(self._offset_requests.fetch(ticket, request, info))

    def offset_delete(self, ticket: Ticket, request: OffsetDeleteRequest, info: RequestInfo, _: Now) -> Step:
        return self._done(self._offset_requests.delete(ticket, request, info))

    # -- administration ------------------------------------------------------------------------------

    def list_groups(self, request: ListGroupsRequest, only: Sequence[str] | None = None) -> list[ListedGroup]:
        """The groups of this shard, or only some; the caller joins those of all shards."""
        if not self.groups:
            return []  # filters may be many
        states = {state.lower() for state in request.states_filter}
        types = {name.lower() for name in request.types_filter}
        return [
            group.listed()
            for group in (self.groups.values() if only is None else present(self.groups, only))
            if (not states or group.state_name.lower() in states)
            and (not types or group.type_name.lower() in types)
        ]

    def describe_groups(
        self, ticket: Ticket, request: DescribeGroupsRequest, info: RequestInfo, _: Now
    ) -> Step:
        allowed = operations(ON_GROUP, asked=request.include_authorized_operations)
        groups = [self._described(group_id, info, allowed) for group_id in request.groups]
        return self._done(Step(replies=[(ticket, DescribeGroupsResponse(groups=groups))]))

    def _described(self, group_id: str, info: RequestInfo, allowed: int) -> DescribedGroup:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.described(allowed)
        is_told = info.api_version >= _NOT_FOUND_FROM
        wrong = "not found" if group is None else "is not a classic group"
        return DescribedGroup(
            group_id=group_id,
            group_state="Dead",
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.NONE,
            error_message=f"Group {group_id} {wrong}." if is_told else None,
            authorized_operations=NOT_ASKED if is_told else allowed,
        )

    def delete_groups(
        self, ticket: Ticket, request: DeleteGroupsRequest, _info: RequestInfo, now: Now
    ) -> Step:
        step = Step()
        results = {group_id: self._delete(group_id, step, now) for group_id in request.groups_names}
        self._share_requests.await_removals(ticket, results, step)
        return self._done(step)

    def _delete(self, group_id: str, step: Step, now: Now) -> ErrorCode | None:
        """Delete a group; returns None while the deletion is under way."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if isinstance(group, ShareGroup):
            return group.begin_removal(step, now)
        if isinstance(group, ClassicGroup) and group.is_ledger:
            return ErrorCode.POLICY_VIOLATION
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        step.records += self.offsets.tombstones(group_id) + group.tombstones()
        return ErrorCode.NONE

    # -- the machine ---------------------------------------------------------------------------------

    def replay(self, record: StateRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        self._replay.replay(record, producer_id)

    def end_transaction(self, marker: EndTxnMarker) -> None:
        self._replay.end_transaction(marker)

    def loaded(self, now: Now) -> Step:
        step = Step()
        for group in list(self.groups.values()):
            step.include(group.loaded(now))
        self.expiration.schedule(now)
        return self._done(step)

    def tick(self, now: Now) -> Step:
        """Handle one timer that has run out; while there are more, the deadline has passed."""
        key = self._context.timers.pop_due(now.ms)
        if key is None:
            return self._done(Step())
        if key == EXPIRATION:
            step = Step()
            self.expiration.run(step, now)
            return self._done(step)
        group = self.groups.get(key.group_id)
        return self._done(Step() if group is None else group.expired(key, now), key.group_id)

    def topics_changed(self, topics: TopicsView, now: Now, *, deleted: Container[bytes]) -> Step:
        """`deleted`: the ids of those that were deleted.

        What groups know of topics that are merely missing is kept: the store may have been restored.
        """
        old = self._context.topics
        self._context.see(topics, deleted)
        if gone := self._gone({**self._missing, **old} if self._missing else old):
            self.expiration.topics_deleted(gone, now)
            for group in self.groups.values():
                if isinstance(group, ShareGroup):
                    group.watch_topics(now)
        elif any(name in old and info.partitions < old[name].partitions for name, info in topics.items()):
            self.expiration.begin(now)
        return self._done(Step())

    def _gone(self, before: TopicsView) -> set[str]:
        """The names whose topics were deleted or have been replaced; notes which are missing."""
        topics, deleted = self._context.topics, self._context.deleted
        gone: set[str] = set()
        missing: dict[str, TopicInfo] = {}
        for name, info in before.items():
            if name in topics:
                if topics[name].topic_id != info.topic_id:
                    gone.add(name)
            elif info.topic_id in deleted:
                gone.add(name)
            else:
                missing[name] = info
        self._missing = missing
        return gone

    # -- helpers -------------------------------------------------------------------------------------

    def _done(self, step: Step, group_id: str | None = None) -> Step:
        if group_id is not None and not step.records:
            self._replay.forget_idle(group_id)
        step.deadline_ms = self._context.timers.next_ms()
        return step

    def _fail(self, ticket: Ticket, request: Request, info: RequestInfo, code: ErrorCode) -> Step:
        return self._done(Step(replies=[(ticket, failure(request, info, code))]))
