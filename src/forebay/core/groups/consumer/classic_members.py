"""Members of the classic protocol in a KIP-848 group.

They join and sync as usual, and do not notice that no member leads: their generation is the member epoch, and
their assignment is made by the broker. A join replaces the full heartbeat of the other members. A classic
heartbeat can only make a member join again, so they reconcile by joining. A cooperative member gives up what
is missing from its assignment and joins again; an eager one gives everything up before it joins.
"""

from __future__ import annotations

from dataclasses import replace

from forebay.core.groups.assigned_partitions import Partitions
from forebay.core.groups.classic.group import JOIN, SYNC
from forebay.core.groups.classic.members import new_member_id, protocols_of, rebalance_timeout_ms
from forebay.core.groups.classic.requests import leaving, left
from forebay.core.groups.consumer.group import ConsumerBase
from forebay.core.groups.consumer.members import Classic, ConsumerMember, MemberState
from forebay.core.groups.consumer.migration import assignment_of, by_id, can_be_classic, to_classic
from forebay.core.groups.consumer.reconciliation import available
from forebay.core.groups.consumer.state import Draft
from forebay.core.groups.group import TimerKey
from forebay.core.step import Now, RequestInfo, Step, Ticket
from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from forebay.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from forebay.wire.state.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    read_subscription,
)

_MEMBER_ID_REQUIRED_FROM = 4


# -- join --------------------------------------------------------------------------------------------------


def join(group: ConsumerBase, ticket: Ticket, request: JoinGroupRequest, info: RequestInfo, now: Now) -> Step:
    draft = Draft(group.group_id, group.state)
    try:
        response = _join(group, draft, request, info, now)
    except KafkaError as error:
        refused = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
        return Step(replies=[(ticket, refused)])
    return Step(records=draft.records, replies=[(ticket, response)])


def _join(
    group: ConsumerBase, draft: Draft, request: JoinGroupRequest, info: RequestInfo, now: Now
) -> JoinGroupResponse:
    subscription = _subscription(group, request)
    is_unknown = not request.member_id
    prefix = request.group_instance_id or info.client_id
    member_id = request.member_id or new_member_id(prefix, group.context.new_id())
    is_required = is_unknown and request.group_instance_id is None
    if is_required and info.api_version >= _MEMBER_ID_REQUIRED_FROM:
        group.check_room(member_id)
        return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    before = _joining(group, draft, request, member_id)
    owned = by_id(group.context, subscription.owned_partitions)
    member = group.take_over(draft, _updated(before, request, subscription, info), owned, now)
    if can_be_classic(group, draft.state):
        to_classic(group, draft, now)
    else:
        group.cancel(JOIN, member_id)
        group.schedule(SYNC, now.ms + member.rebalance_timeout_ms, member_id)
    group.keep_alive(member, now)
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )


def _subscription(group: ConsumerBase, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The member's subscription, if all classic members share one of its protocols."""
    common = set(protocols_of(request))
    for member_id, member in group.state.members.items():
        if member.classic is not None and member_id != request.member_id:
            common &= {name for name, _ in member.classic.protocols}
    if request.protocol_type == PROTOCOL_TYPE and common:
        try:
            return read_subscription(bytes(request.protocols[0].metadata))
        except ProtocolError as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group has no such protocol")


def _joining(group: ConsumerBase, draft: Draft, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
    instance_id = request.group_instance_id
    old_id = group.state.static.get(instance_id) if instance_id is not None else None
    if old_id is not None and not request.member_id:
        return group.replace(draft, group.state.members[old_id], member_id)
    if instance_id is not None and request.member_id:
        return group.find(member_id, instance_id)
    group.check_room(member_id)
    return group.state.members.get(member_id) or ConsumerMember(member_id=member_id)


def _updated(
    member: ConsumerMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    info: RequestInfo,
) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=info.client_id,
        client_host=info.client_host,
        topic_names=frozenset(subscription.topics),
        topic_regex=None,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        assignor=None,
        classic=Classic(request.session_timeout_ms, tuple(protocols_of(request).items())),
    )


# -- sync and heartbeat ------------------------------------------------------------------------------------


def sync(group: ConsumerBase, ticket: Ticket, request: SyncGroupRequest, now: Now) -> Step:
    try:
        member = _find(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        _check_protocol(member, request)
        # A member that has something to give up has joined already, and joins again when it has done so.
        if group.state.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            _expect_join(group, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "join again")
    except KafkaError as error:
        return Step(replies=[(ticket, SyncGroupResponse(error_code=error.code))])
    group.cancel(SYNC, member.member_id)
    group.keep_alive(member, now)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_of(group.context, member),
    )
    return Step(replies=[(ticket, response)])


def heartbeat(group: ConsumerBase, ticket: Ticket, request: HeartbeatRequest, now: Now) -> Step:
    code = ErrorCode.NONE
    try:
        member = _find(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        group.keep_alive(member, now)
        if _should_join(group, member):
            _expect_join(group, member, now)
            code = ErrorCode.REBALANCE_IN_PROGRESS
    except KafkaError as error:
        code = error.code
    return Step(replies=[(ticket, HeartbeatResponse(error_code=code))])


def _should_join(group: ConsumerBase, member: ConsumerMember) -> bool:
    state = group.state
    if member.epoch < state.epoch or member.state is MemberState.UNREVOKED:
        return True
    target: Partitions = state.target(member.member_id)
    return member.state is MemberState.UNRELEASED and bool(available(member, target, state.owners))


def _expect_join(group: ConsumerBase, member: ConsumerMember, now: Now) -> None:
    key = TimerKey(group.group_id, JOIN, member.member_id)
    if key not in group.context.timers:
        group.context.timers.set(key, now.ms + member.rebalance_timeout_ms)


def _find(group: ConsumerBase, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = group.find(member_id, instance_id)
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} does not speak the classic protocol"
        )
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"the member is in generation {member.epoch}")


def _check_protocol(member: ConsumerMember, request: SyncGroupRequest) -> None:
    assert member.classic is not None
    name, _ = member.classic.protocols[0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member was told protocol {name}")


# -- leave -------------------------------------------------------------------------------------------------


def leave(group: ConsumerBase, ticket: Ticket, request: LeaveGroupRequest, info: RequestInfo) -> Step:
    draft = Draft(group.group_id, group.state)
    gone: dict[str, None] = {}
    results = [_leave(group, identity, gone) for identity in leaving(request, info)]
    if gone:
        group.let_go(draft, *gone)
        group.raise_epoch(draft)
    return Step(records=draft.records, replies=[(ticket, left(results, info))])


def _leave(group: ConsumerBase, identity: MemberIdentity, gone: dict[str, None]) -> MemberResponse:
    code = ErrorCode.NONE
    # An administrator removes a static member by the only name that is known to him, and members of both
    # protocols.
    known_as = identity.member_id or group.state.static.get(identity.group_instance_id or "", "")
    try:
        member = group.find(known_as, identity.group_instance_id)
        gone[member.member_id] = None
    except KafkaError as error:
        code = error.code
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
    )
