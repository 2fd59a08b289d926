"""How a classic group gets from one generation to the next.

Each function takes the group, decides, and adds to a step; the states are explained in `group`.

    prepare -> members join again -> complete_join -> all know the generation -> leader syncs -> Stable

The rules that are easy to forget: a dynamic member that does not join again within the rebalance timeout is
out, a static one stays until its session ends (`timeouts`). An empty group may wait a moment for more members
before its first generation. A member that has joined and got its generation must sync within the rebalance
timeout as well.
"""

from __future__ import annotations

from forebay.core.groups.classic.group import JOIN, SYNC, ClassicState, State
from forebay.core.groups.classic.members import Member
from forebay.core.step import Now, Step
from forebay.errors import ErrorCode
from forebay.wire.messages.sync_group import SyncGroupResponse

_RETRY_MS_MIN = 1_000
"""The shortest time after which a rebalance without any joined member is checked again."""


def rebalance_or_complete(group: ClassicState, step: Step, now: Now) -> None:
    """React to a change of members: start again, or continue if everything that was missing has arrived."""
    if group.state is State.PREPARING:
        maybe_complete(group, step, now)
    else:
        prepare(group, step, now)


def maybe_complete(group: ClassicState, step: Step, now: Now) -> None:
    if group.state is State.PREPARING and not group.is_initial and group.all_joined:
        complete_join(group, step, now)


def prepare(group: ClassicState, step: Step, now: Now) -> None:
    """Ask all members to join again."""
    if group.state is State.COMPLETING:
        _withdraw_generation(group, step, now)
    group.pending_sync.clear()
    group.cancel(SYNC)
    group.is_initial = group.is_empty
    group.become(State.PREPARING)
    if group.is_initial:
        _begin_initial(group, step, now)
    elif group.all_joined:
        complete_join(group, step, now)
    else:
        group.schedule(JOIN, now.ms + group.rebalance_timeout_ms)


def _withdraw_generation(group: ClassicState, step: Step, now: Now) -> None:
    """Answer the members that wait for the leader's assignment: it will not come."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync is not None:
            step.reply(member.sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync = None
            group.keep_alive(member, now)


def _begin_initial(group: ClassicState, step: Step, now: Now) -> None:
    delay_ms = group.context.config.initial_rebalance_delay_ms
    group.extend_initial = False
    group.initial_until_ms = now.ms + max(group.rebalance_timeout_ms, delay_ms)
    if delay_ms:
        group.schedule(JOIN, now.ms + delay_ms)
    else:
        complete_join(group, step, now)


def complete_join(group: ClassicState, step: Step, now: Now) -> None:
    """End the join phase: the next generation consists of the members that have joined."""
    group.cancel(JOIN)
    for member in list(group.members.values()):
        if member.join is None and member.instance_id is None:
            group.remove(member.member_id, step)
    if not group.members:
        step.records.append(group.record(group.generation + 1, {}, now))
    elif group.elect_joined_leader():
        _begin_generation(group, step, now)
    else:
        # Only static members are left, and none of them has joined yet.
        group.schedule(JOIN, now.ms + max(group.rebalance_timeout_ms, _RETRY_MS_MIN))


def _begin_generation(group: ClassicState, step: Step, now: Now) -> None:
    group.begin_generation()
    for member in group.members.values():
        group.pending_sync.add(member.member_id)
        group.keep_alive(member, now)
        member.is_new = False
        if member.join is not None:
            step.reply(member.join, group.joined(member.member_id))
            member.join = None
    group.schedule(SYNC, now.ms + group.rebalance_timeout_ms)


def assign(group: ClassicState, assignments: dict[str, bytes], step: Step, now: Now) -> None:
    """The leader has decided: persist it, and answer all waiting members."""
    step.records.append(group.record(group.generation, assignments, now))
    for member in group.members.values():
        if member.sync is not None:
            step.reply(member.sync, group.synced(assignments.get(member.member_id, b"")))
            member.sync = None
            group.keep_alive(member, now)


def sync_received(group: ClassicState, member: Member) -> None:
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        group.cancel(SYNC)
