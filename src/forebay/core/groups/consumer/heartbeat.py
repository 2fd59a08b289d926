"""The requests of the members of a KIP-848 group: everything is a heartbeat.

With epoch 0 a member joins, or joins again without partitions; with -1 it leaves, with -2 a static member
leaves for a moment; with its own epoch it reports that it is alive, what has changed, and which partitions it
owns.

The partitions of a member that leaves are given to others after `group.consumer.assignment.interval.ms`. A
whole group is often shut down member by member. Members that are about to end would be given partitions by
then, and librdkafka waits for ever in rd_kafka_destroy_flags(NO_CONSUMER_CLOSE), which is how confluent-kafka
drops a consumer, if an assignment waits for the application's callback. Lost members are replaced at once.
"""

from __future__ import annotations

from dataclasses import replace

from forebay.core.groups.assigned_partitions import NOTHING, Partitions, read_partitions, write_partitions
from forebay.core.groups.consumer import classic_members
from forebay.core.groups.consumer.group import REVOKE, ConsumerBase
from forebay.core.groups.consumer.members import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from forebay.core.groups.consumer.migration import can_be_classic, to_classic
from forebay.core.groups.consumer.patterns import Pattern
from forebay.core.groups.consumer.state import Draft
from forebay.core.groups.group import TimerKey
from forebay.core.groups.target_pace import heartbeat_interval_ms
from forebay.core.step import Now, RequestInfo, Step, Ticket
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from forebay.wire.messages.heartbeat import HeartbeatRequest
from forebay.wire.messages.join_group import JoinGroupRequest
from forebay.wire.messages.leave_group import LeaveGroupRequest
from forebay.wire.messages.sync_group import SyncGroupRequest

_CLIENT_MAKES_ID_FROM = 1
"""From this version of the heartbeat on a client generates its own member id."""


class ConsumerGroup(ConsumerBase):
    def consumer_heartbeat(
        self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, info: RequestInfo, now: Now
    ) -> Step:
        draft = Draft(self.group_id, self.state)
        try:
            if request.member_epoch < 0:
                response = self._leave(draft, request, now)
            else:
                response = self._stay(draft, request, info, now)
        except KafkaError as error:
            return Step(replies=[(ticket, refusal(error))])
        return Step(records=draft.records, replies=[(ticket, response)])

    # -- joining and staying -------------------------------------------------------------------------

    def _stay(
        self, draft: Draft, request: ConsumerGroupHeartbeatRequest, info: RequestInfo, now: Now
    ) -> ConsumerGroupHeartbeatResponse:
        owned = None if request.topic_partitions is None else read_partitions(request.topic_partitions)
        if request.member_epoch == 0:
            before = self._joining(draft, request)
        else:
            before = self.find(request.member_id, request.instance_id)
            _check_epoch(before, request.member_epoch, owned)
        member = self.take_over(draft, before.updated(request, info), owned, now)
        self.keep_alive(member, now)
        self.watch_revocation(member, now, restart=not member.has_same_current(before))
        is_told = _is_full(request) or member.assigned != before.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(draft, now),
            assignment=_assignment(member.assigned) if is_told else None,
        )

    def _heartbeat_interval_ms(self, draft: Draft, now: Now) -> int:
        interval_ms = self.context.settings_of(self.group_id).heartbeat_interval_ms
        needs_target = draft.state.epoch > draft.state.assignment_epoch
        return heartbeat_interval_ms(interval_ms, self.wait_ms(now) if needs_target else 0)

    def _joining(self, draft: Draft, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        member_id = request.member_id or self.context.new_id()
        state = self.state
        old_id = state.static.get(request.instance_id) if request.instance_id is not None else None
        if old_id is not None and old_id != member_id:
            old = state.members[old_id]
            if old.classic is None and old.epoch != STATIC_LEAVE_EPOCH:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID, f"instance id {old.instance_id} is member {old_id} now"
                )
            return self.replace(draft, old, member_id)
        self.check_room(member_id)
        member = state.members.get(member_id)
        if member is None:
            return ConsumerMember(member_id=member_id)
        # A member that joins again owns no partitions, whatever it was given before.
        member = replace(
            member, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned=NOTHING, revoking=NOTHING
        )
        draft.set_current(member)
        return member

    # -- leaving -------------------------------------------------------------------------------------

    def _leave(
        self, draft: Draft, request: ConsumerGroupHeartbeatRequest, now: Now
    ) -> ConsumerGroupHeartbeatResponse:
        member = self.find(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_EPOCH:
            self.left_ms = now.ms if self.left_ms is None else self.left_ms
            self._fence(draft, member, now)
        else:
            away = replace(
                member,
                epoch=STATIC_LEAVE_EPOCH,
                previous_epoch=STATIC_LEAVE_EPOCH,
                state=MemberState.STABLE,
                revoking=NOTHING,
            )
            draft.set_current(away)
            self.watch_revocation(away, now, restart=False)
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)

    def _fence(self, draft: Draft, member: ConsumerMember, now: Now) -> None:
        """Remove a member; if all others speak the classic protocol, the group becomes classic again."""
        self.let_go(draft, member.member_id)
        if can_be_classic(self, draft.state):
            to_classic(self, draft, now)
        else:
            self.raise_epoch(draft)

    def expired(self, key: TimerKey, now: Now) -> Step:
        """Fence a member that was silent for too long, or too slow to give up partitions, join or sync."""
        draft = Draft(self.group_id, self.state)
        member = self.state.members.get(key.member_id)
        is_over = key.kind != REVOKE or (member is not None and member.state is MemberState.UNREVOKED)
        if member is not None and is_over:
            self._fence(draft, member, now)
        return Step(records=draft.records)

    # -- members of the classic protocol -------------------------------------------------------------

    def join(self, ticket: Ticket, request: JoinGroupRequest, info: RequestInfo, now: Now) -> Step:
        return classic_members.join(self, ticket, request, info, now)

    def sync(self, ticket: Ticket, request: SyncGroupRequest, now: Now) -> Step:
        return classic_members.sync(self, ticket, request, now)

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, now: Now) -> Step:
        return classic_members.heartbeat(self, ticket, request, now)

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, info: RequestInfo, _: Now) -> Step:
        return classic_members.leave(self, ticket, request, info)


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest,
    info: RequestInfo,
    assignors: tuple[str, ...],
    pattern_size_max: int,
) -> None:
    """Check a request independently of the group; raises KafkaError."""
    for reason, is_wrong in _faults(request, info).items():
        if is_wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        text = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"{text}{', '.join(assignors)}.")
    if request.subscribed_topic_regex:
        try:
            size = Pattern(request.subscribed_topic_regex).size
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
        if size > pattern_size_max:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"the pattern has {size} instructions, and may have {pattern_size_max}: make it simpler, for "
                "example with fewer repetitions, or raise forebay.group.pattern.size.max",
            )


def _faults(request: ConsumerGroupHeartbeatRequest, info: RequestInfo) -> dict[str, bool]:
    epoch = request.member_epoch
    is_joining = epoch == 0
    needs_id = not is_joining or info.api_version >= _CLIENT_MAKES_ID_FROM
    is_subscribed = request.subscribed_topic_names is not None or bool(request.subscribed_topic_regex)
    return {
        "the group id is empty": not request.group_id,
        "the member id is empty": needs_id and not request.member_id,
        "the instance id is empty": request.instance_id == "",
        "the rack id is empty": request.rack_id == "",
        "the member epoch is below -2": epoch < STATIC_LEAVE_EPOCH,
        "only a member with an instance id leaves with epoch -2": (
            epoch == STATIC_LEAVE_EPOCH and request.instance_id is None
        ),
        "who joins must tell a rebalance timeout": is_joining and request.rebalance_timeout_ms < 0,
        "who joins must own no partitions, and say so": is_joining and request.topic_partitions != [],
        "who joins must subscribe to topics by name or pattern": is_joining and not is_subscribed,
    }


def refusal(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    # The response with the new epoch may have been lost. Then the member has only what it was given before.
    is_repeated = epoch == member.previous_epoch and owned is not None and owned <= member.assigned
    if epoch != member.epoch and not is_repeated:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member epoch {epoch} is not the current one, {member.epoch}; "
            "give up all partitions and join again",
        )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """True for a full request: a member that lost contact sends all fields, and needs all partitions."""
    is_subscribed = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    has_told = request.rebalance_timeout_ms >= 0 and is_subscribed and request.topic_partitions is not None
    return request.member_epoch == 0 or has_told


def _assignment(assigned: Partitions) -> Assignment:
    return Assignment(topic_partitions=write_partitions(TopicPartitions, assigned))
