"""The requests of the members of a share group: everything is a heartbeat.

With epoch 0 a member joins, or joins again; with -1 it leaves; with its own epoch it reports that it is
alive, and what has changed. A heartbeat that needs partitions which are being initialized is answered when
they are ready, or after a second with those that are: so the first heartbeat of a group returns its
partitions.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.groups.assigned_partitions import Partitions, write_partitions
from forebay.core.groups.classic.group import SESSION
from forebay.core.groups.group import Context, TimerKey, TopicsView
from forebay.core.groups.share.members import LEAVE_EPOCH, ShareMember
from forebay.core.groups.share.partition_states import DELETE, GONE, WAIT_MS, ShareStates
from forebay.core.groups.share.state import Draft
from forebay.core.groups.target_pace import heartbeat_interval_ms
from forebay.core.step import Now, RequestInfo, Step, Ticket
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

WAIT = "share-wait"
"""The timer of a waiting heartbeat."""

_MEMBER_ID_LENGTH_MAX = 36


class Waiting(NamedTuple):
    """A heartbeat that is not answered yet."""

    ticket: Ticket
    deadline_ms: int
    before: Partitions
    """The member's assignment before."""
    wants_assignment: bool
    """True if the response carries the assignment even if it has not changed."""


class ShareMembers(ShareStates):
    def __init__(self, group_id: str, context: Context) -> None:
        super().__init__(group_id, context)
        self.waiting: dict[str, Waiting] = {}
        """Waiting heartbeats by member, at most one of each."""
        self._settled: tuple[TopicsView, int] | None = None
        """The topics and the state (by its number of changes) for which nothing was left to do."""

    def share_heartbeat(
        self, ticket: Ticket, request: ShareGroupHeartbeatRequest, info: RequestInfo, now: Now
    ) -> Step:
        step = Step()
        draft = Draft(self.group_id, self.state)
        try:
            if request.member_epoch == LEAVE_EPOCH:
                self._leave(draft, step, ticket, request)
            else:
                self._stay(draft, step, ticket, request, info, now)
        except KafkaError as error:
            return Step(replies=[(ticket, refusal(error))])
        step.records = draft.records
        return step

    # -- joining and staying -------------------------------------------------------------------------

    def _stay(
        self,
        draft: Draft,
        step: Step,
        ticket: Ticket,
        request: ShareGroupHeartbeatRequest,
        info: RequestInfo,
        now: Now,
    ) -> None:
        self._check_views(request)
        before = self._known(request)
        member = before.updated(request, info)
        is_new = member.member_id not in self.state.members
        if is_new or member != before:
            draft.set_member(member)
        self.keep_alive(member.member_id, now)
        if draft.records or not self._is_settled:
            self.refresh(draft, changed=is_new or member.topic_names != before.topic_names)
            self.initialize_missing(draft, step, now)
        waiting = Waiting(
            ticket,
            now.ms + WAIT_MS,
            before.assigned,
            wants_assignment=request.member_epoch != before.epoch
            or request.member_epoch == 0
            or request.subscribed_topic_names is not None,
        )
        self._displace(draft, step, member.member_id, now)
        if self.awaited_until_ms(member, now) is None:
            step.reply(ticket, self._answer(draft, member.member_id, waiting, now))
        else:
            self.waiting[member.member_id] = waiting
            self.context.timers.set(self._wait_timer(member.member_id), waiting.deadline_ms)

    def _check_views(self, request: ShareGroupHeartbeatRequest) -> None:
        topics = self.context.topics
        named = request.subscribed_topic_names or ()
        views = [name for name in named if name in topics and topics[name].is_view]
        if views:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"share groups read topics only, and {', '.join(map(repr, views))} is a view",
            )

    def _known(self, request: ShareGroupHeartbeatRequest) -> ShareMember:
        if request.member_epoch != 0:
            member = self.find(request.member_id)
            _check_epoch(member, request.member_epoch)
            return member
        self.check_room(request.member_id)
        return self.state.members.get(request.member_id) or ShareMember(member_id=request.member_id)

    @property
    def _is_settled(self) -> bool:
        if self._settled is None or self.attempts:
            return False
        topics, changes = self._settled
        return topics is self.context.logs and changes == self.state.changes

    def _answer(
        self, draft: Draft, member_id: str, waiting: Waiting, now: Now
    ) -> ShareGroupHeartbeatResponse:
        if draft.records or not self._is_settled:
            self.assign(draft, now)
        member = self.move(draft, member_id)
        is_done = not draft.records and not self.attempts
        if is_done and draft.state.assignment_epoch == draft.state.epoch:
            self._settled = (self.context.logs, self.state.changes)
        is_told = waiting.wants_assignment or member.assigned != waiting.before
        return ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=heartbeat_interval_ms(
                self.context.settings_of(self.group_id).share.heartbeat_interval_ms,
                self.pace.wait_ms(now.ms) if draft.state.epoch > draft.state.assignment_epoch else 0,
            ),
            assignment=_assignment(member.assigned) if is_told else None,
        )

    # -- waiting -------------------------------------------------------------------------------------

    def answer_waiting(self, draft: Draft, step: Step, now: Now) -> None:
        """Answer heartbeats that need not wait any longer: after an initialization, a deletion or a
        failure."""
        if self.waiting:
            self.initialize_missing(draft, step, now)
        for member_id, waiting in list(self.waiting.items()):
            member = draft.state.members[member_id]
            if waiting.deadline_ms <= now.ms or self.awaited_until_ms(member, now) is None:
                self._displace(draft, step, member_id, now)

    def _displace(self, draft: Draft, step: Step, member_id: str, now: Now) -> None:
        """Answer a waiting heartbeat, if there is one, with the present assignment."""
        waiting = self._take_waiting(member_id)
        if waiting is not None:
            step.reply(waiting.ticket, self._answer(draft, member_id, waiting, now))

    def _take_waiting(self, member_id: str) -> Waiting | None:
        self.context.timers.cancel(self._wait_timer(member_id))
        return self.waiting.pop(member_id, None)

    def _wait_timer(self, member_id: str) -> TimerKey:
        return TimerKey(self.group_id, WAIT, member_id)

    # -- leaving -------------------------------------------------------------------------------------

    def _leave(self, draft: Draft, step: Step, ticket: Ticket, request: ShareGroupHeartbeatRequest) -> None:
        self._fence(draft, step, self.find(request.member_id))
        step.reply(ticket, ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH))

    def _fence(self, draft: Draft, step: Step, member: ShareMember) -> None:
        """Remove a member; the others get its partitions with their next heartbeats."""
        draft.remove_member(member.member_id)
        self.raise_epoch(draft)
        if not draft.state.members:
            draft.set_assignment_epoch(draft.state.epoch, 0)
        self.context.timers.cancel(TimerKey(self.group_id, SESSION, member.member_id))
        waiting = self._take_waiting(member.member_id)
        if waiting is not None:
            gone = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.member_id} has left the group")
            step.reply(waiting.ticket, refusal(gone))

    # -- time ----------------------------------------------------------------------------------------

    def loaded(self, now: Now) -> Step:
        step = Step()
        draft = Draft(self.group_id, self.state)
        for member_id in self.state.members:
            self.keep_alive(member_id, now)
        deleting = [topic_id for topic_id, topic in self.state.topics.items() if topic.deleting]
        self.delete_states(draft, step, deleting, now)
        self.watch_topics(now)
        step.records = draft.records
        return step

    def expired(self, key: TimerKey, now: Now) -> Step:
        step = Step()
        draft = Draft(self.group_id, self.state)
        match key.kind:
            case kind if kind == SESSION and key.member_id in self.state.members:
                self._fence(draft, step, self.state.members[key.member_id])
            case kind if kind == WAIT:
                self._displace(draft, step, key.member_id, now)
            case kind if kind == DELETE:
                self.delete_again(draft, step, bytes.fromhex(key.member_id), now)
            case kind if kind == GONE:
                self.delete_gone(draft, step, now)
        step.records = draft.records
        return step


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Check a request independently of the group; raises KafkaError."""
    faults = {
        "the member id is empty": not request.member_id,
        "the member id is longer than 36 characters": len(request.member_id) > _MEMBER_ID_LENGTH_MAX,
        "the group id is empty": not request.group_id,
        "the rack id is empty": request.rack_id == "",
        "who joins must subscribe to topics": request.member_epoch == 0
        and not request.subscribed_topic_names,
        "the member epoch is below -1": request.member_epoch < LEAVE_EPOCH,
    }
    for reason, is_wrong in faults.items():
        if is_wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def refusal(error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _check_epoch(member: ShareMember, epoch: int) -> None:
    # The response with the new epoch may have been lost: then the member sends the previous one.
    if epoch not in (member.epoch, member.previous_epoch):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member epoch {epoch} is not the current one, {member.epoch}; "
            "give up all partitions and join again",
        )


def _assignment(assigned: Partitions) -> Assignment:
    return Assignment(topic_partitions=write_partitions(TopicPartitions, assigned))
