"""The runtime of `group_runtime` for KIP-848 groups, and a client of the consumer protocol.

After every step, what the shard knows of such a group must be what the log tells, all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from forebay.core.groups.assigned_partitions import Partitions, read_partitions, write_partitions
from forebay.core.groups.classic.group import SESSION
from forebay.core.groups.classic.requests import ClassicGroup
from forebay.core.groups.consumer.group import REVOKE
from forebay.core.groups.consumer.heartbeat import ConsumerGroup
from forebay.core.groups.consumer.members import MemberState
from forebay.core.groups.group import TimerKey
from forebay.core.groups.shard import GroupShard
from forebay.errors import ErrorCode
from forebay.wire.batch import EndTxnMarker
from forebay.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from forebay.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from support.machines.group_runtime import LogEntry, Runtime, check_group, classic_views

ORDERS, PAYMENTS = b"o" * 16, b"p" * 16
SESSION_MS, REBALANCE_MS = 45_000, 60_000


def parts(topic: bytes, *indexes: int) -> Partitions:
    return frozenset((topic, index) for index in indexes)


class ConsumerRuntime(Runtime):
    shadow: GroupShard | None = None
    """One that only ever replays what is appended to the log."""
    shadow_length = 0

    def check(self) -> None:
        if self.shadow is None or self.shadow_length > len(self.log):
            self.shadow = self.fresh()
        else:
            replay(self.shadow, self.log[self.shadow_length :])
        self.shadow_length = len(self.log)
        assert classic_views(self.shadow) == self.written
        assert self.shadow.offsets.contents() == self.shard.offsets.contents()
        assert set(self.shadow.groups) <= set(self.shard.groups)
        for name, group in self.shard.groups.items():
            other = self.shadow.groups.get(name)
            assert group.persisted == (other is not None and other.persisted)
            if isinstance(group, ConsumerGroup):
                assert isinstance(other, ConsumerGroup)
                assert other.state == group.state
                check_consumer_group(group)
            else:
                assert isinstance(group, ClassicGroup)
                check_group(group)

    def consumers(self, group_id: str = "g") -> ConsumerGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def beat(
        self,
        member_id: str = "",
        epoch: int = 0,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        owned: Partitions | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        version: int = 1,
        principal: str = "",
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else write_partitions(TopicPartitions, owned),
        )
        response = self.ask("consumer_group_heartbeat", request, version, principal=principal)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def enter_group(self, member_id: str, *topics: str, **options: Any) -> ConsumerGroupHeartbeatResponse:
        """The first heartbeat of a member."""
        asked = {"topics": topics or ("orders",), "owned": frozenset(), "rebalance_ms": REBALANCE_MS}
        return self.beat(member_id, 0, **{**asked, **options})

    def describe(self, group_id: str = "g") -> DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        described: DescribedGroup = self.ask("consumer_group_describe", request, 1).groups[0]
        return described


def replay(shard: GroupShard, entries: list[LogEntry]) -> None:
    for entry in entries:
        if isinstance(entry, EndTxnMarker):
            shard.end_transaction(entry)
        else:
            for record in entry[1]:
                shard.replay(record, entry[0])


def assigned(response: ConsumerGroupHeartbeatResponse) -> Partitions | None:
    return None if response.assignment is None else read_partitions(response.assignment.topic_partitions)


def check_consumer_group(group: ConsumerGroup) -> None:
    """What holds for such a group between any two operations."""
    state, timers = group.state, group.context.timers
    owners = {
        partition: member.member_id
        for member in state.members.values()
        for partition in member.assigned | member.revoking
    }
    assert state.owners == owners, "two members have the same partition"
    assert len(owners) == sum(len(each.assigned) + len(each.revoking) for each in state.members.values())
    assert sum(map(len, state.targets.values())) == len(frozenset[Any]().union(*state.targets.values()))
    assert set(state.targets) <= set(state.members)
    assert state.subscriptions == Counter(member.subscription for member in state.members.values())
    assert state.assignment_epoch <= state.epoch
    assert state.static == {
        member.instance_id: member.member_id
        for member in state.members.values()
        if member.instance_id is not None
    }
    for member_id, member in state.members.items():
        assert member.member_id == member_id
        assert member.epoch <= state.epoch
        assert bool(member.revoking) <= (member.state is MemberState.UNREVOKED)
        assert TimerKey(group.group_id, SESSION, member_id) in timers
        must_revoke = member.state is MemberState.UNREVOKED and member.classic is None
        assert (TimerKey(group.group_id, REVOKE, member_id) in timers) == must_revoke


class ConsumerClient:
    """One that plays by the rules: takes what it is given, gives up what it is told to, and says so."""

    def __init__(self, runtime: ConsumerRuntime, name: str, instance_id: str | None = None) -> None:
        self.runtime = runtime
        self.name = name
        self.instance_id = instance_id
        self.topics: tuple[str, ...] = ("orders",)
        self.regex: str | None = None
        self.principal = f"User:{name}"
        self.lives = 0
        self.restart()

    def restart(self) -> None:
        """It forgets everything, as a new process does."""
        self.lives += 1
        self.member_id = f"{self.name}{self.lives}"
        self.epoch = 0
        self.owned: Partitions = frozenset()
        self.told: Partitions = frozenset()
        self.tells_all = True

    @property
    def is_in(self) -> bool:
        return self.epoch > 0

    def beat(self, *, lost: bool = False, says_owned: bool = True) -> int:
        """One heartbeat; after one whose answer was lost, the next tells everything again."""
        full = self.tells_all or self.epoch == 0
        response = self.runtime.beat(
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            topics=self.topics if full else None,
            regex=(self.regex or "") if full else None,
            rebalance_ms=REBALANCE_MS if full else -1,
            owned=self.owned if full or says_owned else None,
            principal=self.principal,
        )
        self.tells_all = lost
        if not lost:
            self.hear(response)
        return response.error_code

    def hear(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned, self.told, self.tells_all = 0, frozenset(), frozenset(), True
        elif response.error_code == ErrorCode.NONE:
            assert response.member_id == self.member_id
            assert response.member_epoch > 0
            self.epoch = response.member_epoch
            told = assigned(response)
            if told is not None:
                self.told = told
                self.owned |= told

    def give_up(self) -> bool:
        """Stop working on what it is no longer to have; whether there was something."""
        had_more = self.owned != self.told
        self.owned &= self.told
        return had_more

    def subscribe(self, *topics: str, regex: str | None = None) -> None:
        self.topics, self.regex, self.tells_all = topics, regex, True

    def leave(self, epoch: int = -1) -> None:
        response = self.runtime.beat(self.member_id, epoch, instance_id=self.instance_id)
        # One that starts anew may not be in the group, or another of its instance id may be.
        refusals = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
        assert response.error_code in (ErrorCode.NONE, *refusals)
        self.restart()


def settle(clients: Iterable[ConsumerClient]) -> None:
    """Each member's next heartbeat; who is told to give something up does so and says so at once."""
    for client in clients:
        assert client.beat() == ErrorCode.NONE
        if client.give_up():
            assert client.beat() == ErrorCode.NONE
