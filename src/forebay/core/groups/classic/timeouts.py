"""Handles the timers of a classic group: of a session, a join, a sync, a rebalance.

A member whose session is over is removed, and the others rebalance. Members that wait for an answer do not
have to send heartbeats.
"""

from __future__ import annotations

from forebay.core.groups.classic.group import JOIN, REBALANCE, SESSION, SYNC, ClassicState, State
from forebay.core.groups.classic.rebalance import complete_join, maybe_complete, prepare
from forebay.core.groups.group import TimerKey
from forebay.core.step import Now, Step


def expired(group: ClassicState, key: TimerKey, now: Now) -> Step:
    step = Step()
    if key.kind == SESSION:
        _session_expired(group, key.member_id, step, now)
    elif key.kind == JOIN and group.state is State.PREPARING:
        _join_expired(group, step, now)
    elif key.kind == SYNC and group.state in (State.COMPLETING, State.STABLE):
        _sync_expired(group, step, now)
    elif key.kind == REBALANCE and group.state is State.STABLE:
        prepare(group, step, now)  # it was a group of the consumer protocol a moment ago
    return step


def _session_expired(group: ClassicState, member_id: str, step: Step, now: Now) -> None:
    member = group.members.get(member_id)
    if member is not None and member.waits and not member.is_new:
        return  # its timer is set again when it is answered
    group.remove(member_id, step)
    if member is not None and group.state is not State.PREPARING:
        prepare(group, step, now)
    else:
        maybe_complete(group, step, now)


def _join_expired(group: ClassicState, step: Step, now: Now) -> None:
    delay_ms = group.context.config.initial_rebalance_delay_ms
    if group.is_initial and group.extend_initial and now.ms < group.initial_until_ms:
        group.extend_initial = False
        group.schedule(JOIN, min(now.ms + delay_ms, group.initial_until_ms))
    else:
        complete_join(group, step, now)


def _sync_expired(group: ClassicState, step: Step, now: Now) -> None:
    if group.pending_sync:
        for member_id in list(group.pending_sync):
            group.remove(member_id, step)
        prepare(group, step, now)
