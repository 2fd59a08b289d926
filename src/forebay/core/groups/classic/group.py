"""A classic group: in each rebalance all members join, and one of them, the leader, assigns the partitions.

    Empty                no members; offsets may still be there
    PreparingRebalance   members have to join again; waits until all did, or the rebalance timeout
    CompletingRebalance  the next generation is known; waits for the leader's assignment
    Stable               every member has its assignment, and heartbeats
    Dead                 deleted; the object is discarded

The last completed generation survives a restart, or the fact that the group is empty: one record, written
when the leader hands in the assignment, when the last member is gone, and when a static member comes back
under a new id. Replaying it makes the group Stable or Empty. Everything between is soft: after a crash the
members of the last complete generation are asked to join again, or time out.

This file holds the state of a group and the questions about it, `rebalance` the transitions, `timeouts`
starts them when a member is silent or too slow, and `requests` handles the clients' requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from forebay.core.groups.classic.members import (
    Member,
    common_protocols,
    elect_protocol,
    restored_member,
    subscribed_topics,
)
from forebay.core.groups.group import Claim, Context, Group, TimerKey
from forebay.core.step import Now, StateRecord, Step
from forebay.errors import ErrorCode
from forebay.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from forebay.wire.messages.sync_group import SyncGroupResponse
from forebay.wire.state.consumer_protocol import PROTOCOL_TYPE
from forebay.wire.state.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from forebay.wire.state.versioned import pack

KEY_VERSION = 2
_VALUE_VERSION = 3

JOIN = "join"
SYNC = "sync"
SESSION = "session"
REBALANCE = "rebalance"
"""The timers of a group and of its members."""


LEDGER_PREFIX = "spark-sink-"
LEDGER_TYPE = "spark-sink"
"""As the protocol type, so that tools for consumer groups leave such a group alone."""


class State(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING}),
    State.STABLE: frozenset({State.PREPARING, State.STABLE}),
    State.DEAD: frozenset(),
}


class ClassicState(Group):
    type_name = "classic"

    def __init__(self, group_id: str, context: Context) -> None:
        super().__init__(group_id, context)
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        """None for a group that only ever stored offsets."""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Member ids by group instance id."""
        self._common: set[str] | None = None
        """The protocols that all members support; None if that has to be found out."""
        self._awaited: Member | None = None
        """A member that had not joined yet when this was last asked."""
        self.pending: set[str] = set()
        """Ids that were given out and not used to join yet."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self.topics: frozenset[str] | None = None
        """The topics that the members subscribe to, if known."""
        self.state_timestamp = -1
        self.is_initial = False
        """The rebalance under way is the first since the group was empty, and may be delayed."""
        self.initial_until_ms = 0
        self.extend_initial = False

    # -- state ---------------------------------------------------------------------------------------

    def become(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state} to {state}"
        self.state = state

    def replay(self, value: GroupMetadataValue) -> None:
        """Take over what the log says. Waiting requests and timers of present members are kept."""
        self.persisted = True
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        self.state_timestamp = value.current_state_timestamp
        self.members = {record.member_id: self._replayed(record, value.protocol) for record in value.members}
        self.static = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None}
        self._common = None
        self.state = State.STABLE if self.members else State.EMPTY
        self.is_initial = False
        self.update_topics()

    def _replayed(self, record: MemberMetadata, protocol: str | None) -> Member:
        member = restored_member(record, protocol)
        live = self.members.get(record.member_id)
        if live is not None:
            member.join, member.sync, member.is_new = live.join, live.sync, live.is_new
            if live.protocols.get(protocol or "") == record.subscription:
                member.protocols = live.protocols
        return member

    def begin_generation(self) -> None:
        """Begin a new generation with the joined members; the log still has the previous one."""
        self.generation += 1
        self.protocol = elect_protocol(self.members.values())
        self.update_topics()
        self.become(State.COMPLETING)

    def update_topics(self) -> None:
        is_consumer = self.protocol_type == PROTOCOL_TYPE
        self.topics = subscribed_topics(self.members.values(), self.protocol) if is_consumer else None

    def record(self, generation: int, assignments: Mapping[str, bytes], now: Now) -> StateRecord:
        """The record to restore the group from: of this generation, with these assignments."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=generation,
            protocol=self.protocol if self.members else None,
            leader=self.leader if self.members else None,
            current_state_timestamp=now.wall_ms,
            members=[
                member.record(self.protocol, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ],
        )
        return StateRecord(self._key(), pack(value, _VALUE_VERSION))

    def tombstones(self) -> list[StateRecord]:
        return [StateRecord(self._key(), None)] if self.persisted else []

    def _key(self) -> bytes:
        return pack(GroupMetadataKey(group=self.group_id), KEY_VERSION)

    # -- members -------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        elif self._common is not None:
            self._common = self._common.intersection(member.protocols)
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str, step: Step) -> None:
        """Let a member go; what it waits for is answered with UNKNOWN_MEMBER_ID, so that it joins anew."""
        self.cancel(SESSION, member_id)
        self.pending.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._common = None
        answer_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID, step)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def update(self, member: Member, request: JoinGroupRequest) -> None:
        """Take over what a member says of itself when it joins again."""
        before = member.protocols.keys()
        member.update(request)
        if member.protocols.keys() != before:
            self._common = None

    def replace_static(self, old_id: str, new_id: str, step: Step) -> Member:
        """Give a static member's place to its new incarnation; the old one is fenced."""
        member = self.members[old_id]
        answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID, step)
        self.cancel(SESSION, old_id)
        self.members = {new_id if key == old_id else key: value for key, value in self.members.items()}
        member.member_id = new_id
        assert member.instance_id is not None
        self.static[member.instance_id] = new_id
        self.pending_sync.discard(old_id)
        if self.leader == old_id:
            self.leader = new_id
        return member

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one of the joined members; False if there are none."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join is None:
            joined = (member.member_id for member in self.members.values() if member.join is not None)
            self.leader = next(joined, self.leader)
        leader = self.members.get(self.leader or "")
        return leader is not None and leader.join is not None

    @property
    def all_joined(self) -> bool:
        if self.pending:
            return False
        awaited = self._awaited
        if awaited is None or awaited.join is not None or self.members.get(awaited.member_id) is not awaited:
            # From the end: members mostly join in the order in which they came, so that this one is the last.
            missing = (member for member in reversed(self.members.values()) if member.join is None)
            self._awaited = next(missing, None)
        return self._awaited is None

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, request: JoinGroupRequest) -> bool:
        names = {protocol.name for protocol in request.protocols}
        if not self.members:
            return bool(names and request.protocol_type)
        if self._common is None:
            self._common = common_protocols(self.members.values())
        return request.protocol_type == self.protocol_type and not names.isdisjoint(self._common)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # -- timers --------------------------------------------------------------------------------------

    def schedule(self, kind: str, deadline_ms: int, member_id: str = "") -> None:
        self.context.timers.set(TimerKey(self.group_id, kind, member_id), deadline_ms)

    def cancel(self, kind: str, member_id: str = "") -> None:
        self.context.timers.cancel(TimerKey(self.group_id, kind, member_id))

    def keep_alive(self, member: Member, now: Now) -> None:
        self.schedule(SESSION, now.ms + member.session_timeout_ms, member.member_id)

    def loaded(self, now: Now) -> Step:
        for member in self.members.values():
            self.keep_alive(member, now)
        if self.members and self.leader is None:
            self.schedule(REBALANCE, now.ms)
        return Step()

    def committed(self, member_id: str, now: Now) -> None:
        member = self.members.get(member_id)
        if member is not None and self.state in (State.STABLE, State.PREPARING):
            self.keep_alive(member, now)

    # -- what the shard asks --------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type_name(self) -> str:
        return self.protocol_type or (LEDGER_TYPE if self.is_ledger else "")

    @property
    def is_ledger(self) -> bool:
        """True if this is not a consumer group, but the ledger of a Spark sink's commits.

        A ledger never expires, and is not deleted with a group: a write that is repeated without its record
        is there twice. Deleting the offset itself (OffsetDelete), or its topic, forgets it.
        """
        return self.protocol_type is None and self.group_id.startswith(LEDGER_PREFIX)

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_idle(self) -> bool:
        return self.is_empty and not self.pending

    def check_commit(self, claim: Claim, /) -> ErrorCode:
        if claim.epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        if claim.epoch >= 0 or claim.member_id or claim.instance_id is not None:
            error = self.check_member(claim.member_id, claim.instance_id)
            if error != ErrorCode.NONE:
                return error
            if claim.epoch != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not claim.transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is State.COMPLETING and not claim.transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_fetch(self, _: Claim, /) -> ErrorCode:
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        allowed = self.is_empty or self.protocol_type == PROTOCOL_TYPE
        return ErrorCode.NONE if allowed else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed(self, topic: str) -> bool:
        if self.topics is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.topics

    def expires_from(self, commit_timestamp: int) -> int | None:
        if self.protocol_type is None:
            return None if self.is_ledger else commit_timestamp
        if self.is_empty:
            return commit_timestamp if self.state_timestamp < 0 else self.state_timestamp
        return commit_timestamp if self.state is State.STABLE and self.topics is not None else None

    def described(self, allowed: int) -> DescribedGroup:
        """`allowed`: the operations to report, see `core.access`."""
        protocol = self.protocol if self.state is State.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            protocol_type=self.protocol_type_name,
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol),
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
            authorized_operations=allowed,
        )

    def joined(self, member_id: str, *, leader: str | None = None, skip: bool = False) -> JoinGroupResponse:
        """The answer to a member of the current generation; the leader's carries all members."""
        leader = self.leader if leader is None else leader
        members = self.members.values() if member_id == leader else ()
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader or "",
            skip_assignment=skip,
            member_id=member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    metadata=member.metadata(self.protocol),
                )
                for member in members
            ],
        )

    def synced(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=assignment
        )


def answer_waiting(member: Member, code: ErrorCode, step: Step) -> None:
    """Answer whatever a member waits for with an error."""
    if member.join is not None:
        known_as = "" if code == ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        step.reply(member.join, JoinGroupResponse(error_code=code, member_id=known_as))
    if member.sync is not None:
        step.reply(member.sync, SyncGroupResponse(error_code=code))
    member.join = member.sync = None
