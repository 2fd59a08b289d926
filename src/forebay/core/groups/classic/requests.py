"""The requests of the members of a classic group: join, sync, heartbeat, leave."""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.groups.classic import rebalance, timeouts
from forebay.core.groups.classic.group import SESSION, ClassicState, State
from forebay.core.groups.classic.members import (
    Member,
    elect_protocol,
    new_member,
    new_member_id,
    protocols_of,
)
from forebay.core.groups.group import TimerKey
from forebay.core.step import Now, RequestInfo, Step, Ticket
from forebay.errors import ErrorCode
from forebay.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from forebay.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NEW_MEMBER_TIMEOUT_MS = 300_000
"""A new member whose client disconnected while it waited is dropped after this time, as in Kafka."""

PENDING_MAX = 10_000
"""Ids that may be given out and not used to join yet, in one group."""

_MEMBER_ID_REQUIRED_FROM = 4
_SKIP_ASSIGNMENT_FROM = 9
_BATCH_LEAVE_FROM = 3


class _Join(NamedTuple):
    """One JoinGroup that is being answered."""

    ticket: Ticket
    request: JoinGroupRequest
    info: RequestInfo
    now: Now
    step: Step

    def refuse(self, code: ErrorCode, member_id: str = "") -> None:
        self.step.reply(self.ticket, JoinGroupResponse(error_code=code, member_id=member_id))


class ClassicGroup(ClassicState):
    # -- join ----------------------------------------------------------------------------------------

    def join(self, ticket: Ticket, request: JoinGroupRequest, info: RequestInfo, now: Now) -> Step:
        step = Step()
        call = _Join(ticket, request, info, now, step)
        member_id = request.member_id
        if not self._has_room(self._known_as(request)):
            call.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
            self.remove(member_id, step)
            rebalance.maybe_complete(self, step, now)
        elif not self.supports(request):
            call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif not member_id:
            self._join_unknown(call)
        elif member_id in self.pending and request.group_instance_id is None:
            self._admit(member_id, call)
        else:
            self._join_again(call)
        return step

    def _known_as(self, request: JoinGroupRequest) -> str:
        """The id of the member that asks, even if it gives its group instance id only."""
        return request.member_id or self.static.get(request.group_instance_id or "", "")

    def _has_room(self, member_id: str) -> bool:
        if self.state is State.EMPTY:
            return True
        limit = self.context.config.max_size
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            # Only members that have joined count, so a group that is too large loses those that join last.
            if len(self.members) < limit:
                return True
            joined = sum(other.join is not None for other in self.members.values())
            return (member is not None and member.join is not None) or joined < limit
        return member is not None or len(self.members) < limit

    def _join_unknown(self, call: _Join) -> None:
        instance_id = call.request.group_instance_id
        prefix = call.info.client_id if instance_id is None else instance_id
        member_id = new_member_id(prefix, self.context.new_id())
        if instance_id is not None and instance_id in self.static:
            self._replace(self.static[instance_id], member_id, call)
        elif instance_id is None and call.info.api_version >= _MEMBER_ID_REQUIRED_FROM:
            self._require_member_id(member_id, call)
        else:
            self._admit(member_id, call)

    def _require_member_id(self, member_id: str, call: _Join) -> None:
        if len(self.pending) >= PENDING_MAX:
            call.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        self.pending.add(member_id)
        self.schedule(SESSION, call.now.ms + call.request.session_timeout_ms, member_id)
        call.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _admit(self, member_id: str, call: _Join) -> None:
        member = new_member(member_id, call.request, call.info)
        member.join = call.ticket
        self.extend_initial = True
        self.add(member, call.request.protocol_type)
        self.schedule(SESSION, call.now.ms + NEW_MEMBER_TIMEOUT_MS, member_id)
        rebalance.rebalance_or_complete(self, call.step, call.now)

    def _join_again(self, call: _Join) -> None:
        request, step, now = call.request, call.step, call.now
        error = self.check_member(request.member_id, request.group_instance_id)
        if error != ErrorCode.NONE:
            call.refuse(error, request.member_id)
            return
        member = self.members[request.member_id]
        unchanged = list(member.protocols.items()) == list(protocols_of(request).items())
        # A leader that joins a stable group wants a rebalance, for reasons that only it knows.
        wants_more = self.state is State.STABLE and self.leader == member.member_id
        if self.state is State.PREPARING or wants_more or not unchanged:
            self.update(member, request)
            self._wait_for_join(member, call)
            rebalance.rebalance_or_complete(self, step, now)
        else:
            self.keep_alive(member, now)
            step.reply(call.ticket, self.joined(member.member_id))

    def _wait_for_join(self, member: Member, call: _Join) -> None:
        if member.join is not None:
            # The client has asked again, so it no longer listens to the first request.
            call._replace(ticket=member.join).refuse(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        member.join = call.ticket

    def _replace(self, old_id: str, member_id: str, call: _Join) -> None:
        """Take back a static member under a new id."""
        old_leader = self.leader
        member = self.replace_static(old_id, member_id, call.step)
        self.update(member, call.request)
        member.client_id, member.client_host = call.info.client_id, call.info.client_host
        member.is_new = False
        self.keep_alive(member, call.now)
        if self.state is State.STABLE and elect_protocol(self.members.values()) == self.protocol:
            self._resume(member, old_leader, call)
        else:
            member.join = call.ticket
            rebalance.rebalance_or_complete(self, call.step, call.now)

    def _resume(self, member: Member, old_leader: str | None, call: _Join) -> None:
        """Let the member keep its old assignment, without a rebalance."""
        assignments = {other.member_id: other.assignment for other in self.members.values()}
        call.step.records.append(self.record(self.generation, assignments, call.now))
        if call.info.api_version >= _SKIP_ASSIGNMENT_FROM:
            response = self.joined(member.member_id, skip=self.leader == member.member_id)
        else:
            # An older client that learns it is the leader would send a new assignment.
            response = self.joined(member.member_id, leader=old_leader)
        call.step.reply(call.ticket, response)

    # -- sync ----------------------------------------------------------------------------------------

    def sync(self, ticket: Ticket, request: SyncGroupRequest, now: Now) -> Step:
        step = Step()
        error = self._check_sync(request)
        if error != ErrorCode.NONE:
            step.reply(ticket, SyncGroupResponse(error_code=error))
            return step
        member = self.members[request.member_id]
        rebalance.sync_received(self, member)
        if self.state is State.STABLE:
            self.keep_alive(member, now)
            step.reply(ticket, self.synced(member.assignment))
            return step
        self._wait_for_sync(member, ticket, step)
        if self.leader == member.member_id:
            given = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
            rebalance.assign(self, given, step, now)
        return step

    def _check_sync(self, request: SyncGroupRequest) -> ErrorCode:
        error = self.check_member(request.member_id, request.group_instance_id)
        if error != ErrorCode.NONE:
            return error
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else ErrorCode.NONE

    def _wait_for_sync(self, member: Member, ticket: Ticket, step: Step) -> None:
        if member.sync is not None:
            step.reply(member.sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync = ticket

    # -- heartbeat -----------------------------------------------------------------------------------

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, now: Now) -> Step:
        step = Step()
        error = self.check_member(request.member_id, request.group_instance_id)
        if error == ErrorCode.NONE and request.generation_id != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error == ErrorCode.NONE:
            self.keep_alive(self.members[request.member_id], now)
            if self.state is State.PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        step.reply(ticket, HeartbeatResponse(error_code=error))
        return step

    # -- leave ---------------------------------------------------------------------------------------

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, info: RequestInfo, now: Now) -> Step:
        step = Step()
        before = len(self.members)
        results = [self._leave(identity, step) for identity in leaving(request, info)]
        if len(self.members) < before:
            rebalance.rebalance_or_complete(self, step, now)
        else:
            rebalance.maybe_complete(self, step, now)
        step.reply(ticket, left(results, info))
        return step

    def _leave(self, identity: MemberIdentity, step: Step) -> MemberResponse:
        member_id = identity.member_id
        if not member_id:
            # An administrator removes a static member by the only name that is known to him.
            member_id = self.static.get(identity.group_instance_id or "", "")
        if member_id in self.pending:
            error = ErrorCode.NONE
        else:
            error = self.check_member(member_id, identity.group_instance_id)
        if error == ErrorCode.NONE:
            self.remove(member_id, step)
        return MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
        )

    # -- time ----------------------------------------------------------------------------------------

    def expired(self, key: TimerKey, now: Now) -> Step:
        return timeouts.expired(self, key, now)


def leaving(request: LeaveGroupRequest, info: RequestInfo) -> list[MemberIdentity]:
    """The members that leave; the first versions could name only one."""
    if info.api_version < _BATCH_LEAVE_FROM:
        return [MemberIdentity(member_id=request.member_id)]
    return request.members


def left(results: list[MemberResponse], info: RequestInfo) -> LeaveGroupResponse:
    if info.api_version < _BATCH_LEAVE_FROM:
        return LeaveGroupResponse(error_code=results[0].error_code)
    return LeaveGroupResponse(members=results)
