"""The runtime of `group_runtime` for share groups, with share coordinators that answer when they are told to.

After every step, what the shard knows of a share group must be what the log tells, all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from forebay.core.groups.assigned_partitions import Partitions, TopicPartition, read_partitions
from forebay.core.groups.classic.group import SESSION
from forebay.core.groups.group import TimerKey
from forebay.core.groups.share.effects import (
    DeleteShares,
    InitializeShares,
    ShareStart,
    ShareSummary,
    SummarizeShares,
)
from forebay.core.groups.share.heartbeat import WAIT
from forebay.core.groups.share.offsets import ShareGroup
from forebay.core.groups.share.partition_states import DELETE
from forebay.core.step import Effect, Step
from forebay.errors import ErrorCode
from forebay.wire.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from forebay.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from support.machines.consumer_runtime import ORDERS, PAYMENTS, parts
from support.machines.group_runtime import Runtime

__all__ = ["ORDERS", "PAYMENTS", "ShareClient", "ShareRuntime", "assigned", "parts"]

SESSION_MS = 45_000

StateKey = tuple[str, TopicPartition]


class ShareRuntime(Runtime):
    def __init__(self, **config: Any) -> None:
        self.states: dict[StateKey, tuple[int, int]] = {}
        """What the share coordinators have: state epoch and start offset."""
        self.epochs: dict[StateKey, int] = {}
        """The highest that a state has ever had."""
        self.effects: list[Effect] = []
        """Not performed yet, the oldest first."""
        self.answers_at_once = True
        self.error = ErrorCode.NONE
        """What the share coordinators answer with."""
        super().__init__(**config)

    # -- share coordinators --------------------------------------------------------------------------

    def carry_out(self, step: Step) -> None:
        super().carry_out(step)
        self.effects += step.effects
        while self.answers_at_once and self.effects:
            self.perform()

    def perform(self, *, is_reported: bool = True, is_late: bool = False) -> None:
        """Carry out the oldest effect, and say so. Late: the coordinator that wanted it may be deposed."""
        if not self.effects:
            return
        match self.effects.pop(0):
            case InitializeShares() as effect:
                results = {
                    (each[0], each[1]): self._initialize(effect, each, is_late=is_late)
                    for each in effect.partitions
                }
                if is_reported:
                    self.report_initialized(effect.group_id, effect.state_epoch, results)
            case DeleteShares() as effect:
                for partition in effect.partitions if self.error == ErrorCode.NONE else ():
                    key = (effect.group_id, partition)
                    if key in self.states and self.states[key][0] <= effect.state_epoch:
                        del self.states[key]
                if is_reported:
                    self.report_deleted(effect.group_id, dict.fromkeys(effect.partitions, self.error))
            case SummarizeShares() as effect:
                summaries = {each: self._summarize(effect.group_id, each) for each in effect.partitions}
                self.carry_out(
                    self.shard.share_partitions_summarized(
                        effect.ticket, effect.group_id, summaries, self.now
                    )
                )

    def report_initialized(
        self, group_id: str, state_epoch: int, results: dict[TopicPartition, ErrorCode]
    ) -> None:
        self.carry_out(self.shard.share_partitions_initialized(group_id, state_epoch, results, self.now))

    def report_deleted(self, group_id: str, results: dict[TopicPartition, ErrorCode]) -> None:
        self.carry_out(self.shard.share_partitions_deleted(group_id, results, self.now))

    def _initialize(self, effect: InitializeShares, start: ShareStart, *, is_late: bool) -> ErrorCode:
        key = (effect.group_id, (start.topic_id, start.partition))
        if self.error != ErrorCode.NONE:
            return self.error
        is_there = key in self.states
        if is_there and self.states[key][0] == effect.state_epoch:
            return ErrorCode.NONE
        if is_there and self.states[key][0] > effect.state_epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        assert is_late or effect.state_epoch > self.epochs.get(key, 0), "an epoch is given out once"
        self.epochs[key] = max(effect.state_epoch, self.epochs.get(key, 0))
        self.states[key] = (effect.state_epoch, start.start_offset)
        return ErrorCode.NONE

    def _summarize(self, group_id: str, partition: TopicPartition) -> ShareSummary:
        if self.error != ErrorCode.NONE:
            return ShareSummary(error_code=self.error)
        if (group_id, partition) not in self.states:
            return ShareSummary(is_missing=True)
        _, start = self.states[group_id, partition]
        return ShareSummary(start, 3, 2, 100)

    def start_offsets(self, group_id: str = "g") -> dict[TopicPartition, int]:
        return {key[1]: start for key, (_, start) in self.states.items() if key[0] == group_id}

    # -- checking ------------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        again = self.fresh()
        for name, group in self.shard.groups.items():
            if isinstance(group, ShareGroup):
                other = again.groups.get(name)
                assert isinstance(other, ShareGroup) or not group.persisted
                if isinstance(other, ShareGroup):
                    assert other.state == group.state
                    assert other.context.share_epoch_floor == group.context.share_epoch_floor
                check_share_group(group)

    def shares(self, group_id: str = "g") -> ShareGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ShareGroup)
        return group

    # -- requests ------------------------------------------------------------------------------------

    def send_beat(
        self,
        member_id: str,
        epoch: int = 0,
        *topics: str,
        group_id: str = "g",
        rack_id: str | None = None,
        client_id: str = "app",
    ) -> int:
        """A heartbeat that may wait: its ticket."""
        request = ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack_id,
            subscribed_topic_names=list(topics) if topics else None,
        )
        return self.send("share_group_heartbeat", request, 1, client_id)

    def beat(
        self, member_id: str, epoch: int = 0, *topics: str, **options: Any
    ) -> ShareGroupHeartbeatResponse:
        return self.answer(self.send_beat(member_id, epoch, *topics, **options))

    def answer(self, ticket: int) -> ShareGroupHeartbeatResponse:
        response = self.answers[ticket]
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def describe(self, group_id: str = "g") -> DescribedGroup:
        request = ShareGroupDescribeRequest(group_ids=[group_id])
        described: DescribedGroup = self.ask("share_group_describe", request, 1).groups[0]
        return described


def assigned(response: ShareGroupHeartbeatResponse) -> Partitions | None:
    return None if response.assignment is None else read_partitions(response.assignment.topic_partitions)


def check_share_group(group: ShareGroup) -> None:
    """What holds for such a group between any two operations."""
    state, timers = group.state, group.context.timers
    assert state.assignment_epoch <= state.epoch
    assert set(state.targets) <= set(state.members)
    assert state.subscribers == Counter(name for each in state.members.values() for name in each.topic_names)
    assert set(group.waiting) <= set(state.members)
    for member_id, member in state.members.items():
        assert member.member_id == member_id
        assert member.previous_epoch <= member.epoch <= state.assignment_epoch
        assert TimerKey(group.group_id, SESSION, member_id) in timers
        assert (TimerKey(group.group_id, WAIT, member_id) in timers) == (member_id in group.waiting)
    for topic_id, topic in state.topics.items():
        assert topic.partitions
        assert not topic.initializing & topic.initialized
        assert (TimerKey(group.group_id, DELETE, topic_id.hex()) in timers) == topic.deleting
    if state.members and state.assignment_epoch == state.epoch:
        check_targets(group)


def check_targets(group: ShareGroup) -> None:
    """Everything that is initialized and subscribed to is assigned, evenly, and to subscribers alone."""
    state = group.state
    for member_id, target in state.targets.items():
        assert {topic for topic, _ in target} <= group.topic_ids(state.members[member_id]) | _gone(group)
    by_subscription: dict[frozenset[str], list[int]] = {}
    for member_id, member in state.members.items():
        by_subscription.setdefault(member.topic_names, []).append(len(state.target(member_id)))
    for counts in by_subscription.values():
        assert max(counts) - min(counts) <= 1, "members that subscribe alike have as many"


def _gone(group: ShareGroup) -> set[bytes]:
    """Topics that were deleted since the target was made."""
    topics = {topic for target in group.state.targets.values() for topic, _ in target}
    return topics - set(group.context.names)


class ShareClient:
    """A member that plays by the rules."""

    def __init__(self, runtime: ShareRuntime, name: str, *topics: str) -> None:
        self.runtime = runtime
        self.name = name
        self.lives = 0
        self.topics: tuple[str, ...] = topics or ("orders",)
        self.tickets: list[int] = []
        self.restart()

    def restart(self) -> None:
        """It forgets everything, as a new process does."""
        self.lives += 1
        self.member_id = f"{self.name}{self.lives}"
        self.epoch = 0
        self.assigned: Partitions = frozenset()
        self.tells_all = True
        self.tickets.clear()

    def subscribe(self, *topics: str) -> None:
        self.topics, self.tells_all = topics, True

    def beat(self, *, lost: bool = False) -> None:
        """Send one heartbeat, and hear what has been answered; after a lost answer it tells everything."""
        topics = self.topics if self.tells_all or self.epoch == 0 else ()
        ticket = self.runtime.send_beat(self.member_id, self.epoch, *topics)
        self.tells_all = lost
        if not lost:
            self.tickets = [ticket]
        self.hear()

    def hear(self) -> None:
        for ticket in list(self.tickets):
            if ticket in self.runtime.answers:
                self.tickets.remove(ticket)
                self._hear(self.runtime.answer(ticket))

    def _hear(self, response: ShareGroupHeartbeatResponse) -> None:
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.assigned, self.tells_all = 0, frozenset(), True
            return
        assert response.error_code == ErrorCode.NONE
        assert response.member_id == self.member_id
        self.epoch = response.member_epoch
        told = assigned(response)
        if told is not None:
            self.assigned = told

    def leave(self) -> None:
        response = self.runtime.beat(self.member_id, -1)
        assert response.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
        self.restart()


def settle(clients: Iterable[ShareClient]) -> None:
    for client in clients:
        client.beat()
