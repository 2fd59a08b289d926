"""A group changes its protocol while it works.

When the first member of the consumer protocol joins a classic group of consumers, the group becomes a KIP-848
group, and its members stay as they are: each with its partitions, in the epoch that was their generation.
When the last such member is gone, and others remain, it becomes a classic group again, which rebalances. Both
changes are records in one batch: the old kind of group is deleted and the new one written.
"""

from __future__ import annotations

from forebay.core.groups.assigned_partitions import Partitions, by_topic
from forebay.core.groups.classic.group import JOIN, REBALANCE, SESSION, SYNC, answer_waiting
from forebay.core.groups.classic.members import Member, elect_protocol
from forebay.core.groups.classic.requests import ClassicGroup
from forebay.core.groups.consumer.group import REVOKE, ConsumerBase
from forebay.core.groups.consumer.members import Classic, ConsumerMember
from forebay.core.groups.consumer.state import ConsumerState, Draft
from forebay.core.groups.group import Context, TimerKey
from forebay.core.step import Now, StateRecord, Step
from forebay.errors import ErrorCode, ProtocolError
from forebay.wire.state.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    TopicPartition,
    read_assignment,
    read_subscription,
    write_assignment,
)

# -- to the consumer protocol ------------------------------------------------------------------------------


def upgraded(group: ClassicGroup) -> Draft | None:
    """The records that turn a classic group into a KIP-848 group; None if that is impossible."""
    draft = Draft(group.group_id, ConsumerState())
    if group.is_empty:
        return draft
    if group.protocol_type != PROTOCOL_TYPE or len(group.members) > group.context.config.consumer_max_size:
        return None
    try:
        members = [_upgraded_member(group, member) for member in group.members.values()]
    except ProtocolError:
        return None
    for member in members:
        draft.set_member(member)
    draft.set_epoch(group.generation, 0)
    for member in members:
        draft.set_target(member.member_id, member.assigned)
    draft.set_assignment_epoch(group.generation)
    for member in members:
        draft.set_current(member)
    return draft


def _upgraded_member(group: ClassicGroup, member: Member) -> ConsumerMember:
    protocol = group.protocol if group.protocol in member.protocols else next(iter(member.protocols))
    subscription = read_subscription(member.metadata(protocol))
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=Classic(member.session_timeout_ms, tuple(member.protocols.items())),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=by_id(group.context, read_assignment(member.assignment).assigned_partitions),
    )


def leave_classic(group: ClassicGroup, newcomer: str, step: Step, now: Now) -> None:
    """Make waiting members of the classic group join again; sessions continue, also the new member's."""
    for kind in (JOIN, SYNC):
        group.cancel(kind)
    for member in group.members.values():
        answer_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS, step)
        group.keep_alive(member, now)
    for member_id in group.pending - {newcomer}:
        group.cancel(SESSION, member_id)


# -- and back ----------------------------------------------------------------------------------------------


def can_be_classic(group: ConsumerBase, state: ConsumerState) -> bool:
    """True if members are left, and all of them speak the classic protocol."""
    members = state.members.values()
    is_small = 0 < len(members) <= group.context.config.max_size
    return is_small and all(member.classic is not None for member in members)


def to_classic(group: ConsumerBase, draft: Draft, now: Now) -> None:
    """Turn the group into a classic one: all members left in the draft speak that protocol."""
    record = _classic_record(group, draft.state, now)
    for member_id in draft.state.members:
        for kind in (REVOKE, JOIN, SYNC):
            group.cancel(kind, member_id)
    draft.delete()
    draft.records.append(record)
    # The members find themselves in a generation with gaps; a rebalance starts once it is replayed.
    group.context.timers.set(TimerKey(group.group_id, REBALANCE), now.ms)


def _classic_record(group: ConsumerBase, state: ConsumerState, now: Now) -> StateRecord:
    classic = ClassicGroup(group.group_id, group.context)
    assignments = {}
    for member in state.members.values():
        classic.add(_downgraded_member(member), PROTOCOL_TYPE)
        assignments[member.member_id] = assignment_of(group.context, member)
    classic.protocol = elect_protocol(classic.members.values())
    classic.leader = None  # no leader made this assignment; after a crash a rebalance is due
    return classic.record(state.epoch, assignments, now)


def _downgraded_member(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=dict(member.classic.protocols),
    )


# -- what a classic member calls an assignment -------------------------------------------------------------


def by_id(context: Context, topics: list[TopicPartition]) -> Partitions:
    """Partitions that exist, by topic id."""
    return frozenset(
        (context.topics[entry.topic].topic_id, index)
        for entry in topics
        for index in entry.partitions
        if context.has_partition(entry.topic, index)
    )


def assignment_of(context: Context, member: ConsumerMember) -> bytes:
    """A member's assignment, encoded by its own protocol."""
    assert member.classic is not None
    topics = [
        TopicPartition(topic=context.names[topic_id], partitions=found)
        for topic_id, found in by_topic(member.assigned).items()
        if topic_id in context.names
    ]
    _, subscription = member.classic.protocols[0]
    return write_assignment(ConsumerProtocolAssignment(assigned_partitions=topics), subscription)
