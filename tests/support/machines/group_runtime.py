"""A runtime for group shards in memory: a list of batches for a log, and nothing that takes time.

After every step it holds the shard against a second one that is made from the log alone: whatever must
survive is in the log, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from forebay.config import GroupsConfig, GroupSettings
from forebay.core.groups.classic.group import JOIN, REBALANCE, SESSION, State
from forebay.core.groups.classic.requests import ClassicGroup
from forebay.core.groups.group import AllVisible, TimerKey, Visibility
from forebay.core.groups.shard import GroupShard, TopicInfo, TopicsView
from forebay.core.step import Now, RequestInfo, StateRecord, Step
from forebay.errors import ErrorCode
from forebay.wire.batch import EndTxnMarker
from forebay.wire.codec.compiled import decode, encode
from forebay.wire.messages.heartbeat import HeartbeatRequest
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from forebay.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from forebay.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from forebay.wire.state.consumer_protocol import ConsumerProtocolSubscription
from forebay.wire.state.group_metadata import GroupMetadataKey
from forebay.wire.state.versioned import pack, unpack, version_of
from support.machines.times import WALL_AHEAD_MS, at

TOPICS = {"orders": TopicInfo(b"o" * 16, 4), "payments": TopicInfo(b"p" * 16, 2)}

LogEntry = tuple[int, list[StateRecord]] | EndTxnMarker


def subscription(*topics: str) -> bytes:
    return pack(ConsumerProtocolSubscription(topics=list(topics)), 1)


def own_settings(**overrides: Any) -> GroupSettings:
    """The settings of a group that has some of its own."""
    return replace(GroupSettings.resolve(GroupsConfig(), {}), **overrides)


def _ids(topics: TopicsView) -> set[bytes]:
    return {info.topic_id for info in topics.values()}


class Runtime:
    """Drives one shard as the broker does, and checks its promises on the way."""

    def __init__(self, *, now_ms: int = 1_000_000, wall_ahead_ms: int = WALL_AHEAD_MS, **config: Any) -> None:
        self.config = GroupsConfig(**config)
        self.now_ms = now_ms
        self.wall_ahead_ms = wall_ahead_ms
        self.doubted_ms = 0
        self.log: list[LogEntry] = []
        self.answers: dict[int, Any] = {}
        self.tickets = count(1)
        self.ids = count(1)
        self.topics: TopicsView = TOPICS
        self.deleted: set[bytes] = set()
        self.visibility: Visibility = AllVisible()
        self.settings: dict[str, GroupSettings] = {}
        """Of groups that have some of their own."""
        self.deadline_ms: int | None = None
        self.written: dict[str, Any] = {}
        """Each classic group as it was just after its last record had been replayed."""
        self.shard = self.fresh()
        self.carry_out(self.shard.loaded(self.now))

    # -- machinery -----------------------------------------------------------------------------------

    @property
    def now(self) -> Now:
        return at(self.now_ms, self.wall_ahead_ms, self.doubted_ms)

    def fresh(self) -> GroupShard:
        """A shard that knows what the log tells, and no more."""
        common = GroupSettings.resolve(self.config, {})
        shard = GroupShard(
            config=self.config,
            new_id=lambda: f"id{next(self.ids)}",
            topics=self.topics,
            deleted=self.deleted,
            settings_of=lambda group_id: self.settings.get(group_id, common),
            visibility=self.visibility,
        )
        for entry in self.log:
            if isinstance(entry, EndTxnMarker):
                shard.end_transaction(entry)
            else:
                for record in entry[1]:
                    shard.replay(record, entry[0])
        return shard

    def carry_out(self, step: Step) -> None:
        if step.records:
            producer_id = step.producer[0] if step.producer else -1
            self.log.append((producer_id, step.records))
            for record in step.records:
                self.shard.replay(record, producer_id)
                self._note(record)
        else:
            assert step.producer is None
        for ticket, response in step.replies:
            assert isinstance(ticket, int)
            assert ticket not in self.answers, "a client is answered once"
            self.answers[ticket] = response
        self.deadline_ms = step.deadline_ms
        self.check()

    def _note(self, record: StateRecord) -> None:
        if version_of(record.key) == 2:
            group_id = unpack(GroupMetadataKey, record.key).group
            self.written.pop(group_id, None)
            if record.value is not None:
                self.written[group_id] = classic_view(self.shard, group_id)

    def check(self) -> None:
        again = self.fresh()
        persisted = {name for name, group in again.groups.items() if group.persisted}
        assert classic_views(again) == self.written
        assert again.offsets.contents() == self.shard.offsets.contents()
        assert set(again.groups) <= set(self.shard.groups)
        for name, group in self.shard.groups.items():
            assert group.persisted == (name in persisted)
            if isinstance(group, ClassicGroup):
                check_group(group)

    def crash(self) -> None:
        """The process dies: what is not in the log is gone."""
        self.shard = self.fresh()
        self.carry_out(self.shard.loaded(self.now))

    def compact(self) -> None:
        """Leave only the newest record of each key, where it is; what is part of a transaction stays."""
        newest = {
            record.key: record
            for entry in self.log
            if not isinstance(entry, EndTxnMarker)
            for record in entry[1]
        }
        self.log = [
            entry
            if isinstance(entry, EndTxnMarker) or entry[0] >= 0
            else (entry[0], [record for record in entry[1] if newest[record.key] is record])
            for entry in self.log
        ]
        self.check()

    def lose_from(self, length: int) -> None:
        """What was appended since the log had this length never reached the disk; crash afterwards."""
        del self.log[length:]
        self.written = classic_views(self.fresh())

    def see_topics(self, topics: TopicsView, *, are_deleted: bool = True) -> None:
        """Those that are not there any more were deleted, or are merely missing."""
        if are_deleted:
            self.deleted |= _ids(self.topics) - _ids(topics)
        self.topics = topics
        self.carry_out(self.shard.topics_changed(topics, self.now, deleted=self.deleted))

    def advance(self, ms: int) -> None:
        """Let time pass, with every deadline met on its way."""
        end_ms = self.now_ms + ms
        for _ in range(10_000):
            if self.deadline_ms is None or self.deadline_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, self.deadline_ms)
            self.carry_out(self.shard.tick(self.now))
        raise AssertionError("the shard asks for ticks without end")

    def send(
        self, operation: str, request: Any, version: int, client_id: str = "app", principal: str = ""
    ) -> int:
        """Run an operation on the request as it arrives over the wire; the ticket tells its answer."""
        ticket = next(self.tickets)
        info = RequestInfo(version, client_id, "/127.0.0.1", principal)
        arrived = decode(type(request), version, encode(request, version))
        self.carry_out(getattr(self.shard, operation)(ticket, arrived, info, self.now))
        if ticket in self.answers:
            encode(self.answers[ticket], version)
        return ticket

    def ask(self, operation: str, request: Any, version: int, **who: str) -> Any:
        """The answer of an operation that is answered at once."""
        return self.answers[self.send(operation, request, version, **who)]

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    # -- what clients send ---------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = (("range", subscription("orders")),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        version: int = 9,
        client_id: str = "app",
    ) -> int:
        request = JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        return self.send("join_group", request, version, client_id)

    def enter(self, **options: Any) -> tuple[str, int]:
        """Join as a new client does, in two requests if need be; the ticket is that of the second."""
        ticket = self.join(**options)
        answer = self.answers.get(ticket)
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return answer.member_id, self.join(answer.member_id, **options)
        return answer.member_id if answer is not None else "", ticket

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int = 5,
    ) -> int:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ],
        )
        return self.send("sync_group", request, version)

    def heartbeat(
        self, member_id: str, generation: int, *, group_id: str = "g", instance_id: str | None = None
    ) -> int:
        request = HeartbeatRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        code: int = self.ask("heartbeat", request, 4).error_code
        return code

    def leave(self, *members: tuple[str, str | None], group_id: str = "g") -> list[int]:
        identities = [
            MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in members
        ]
        request = LeaveGroupRequest(group_id=group_id, members=identities)
        return [member.error_code for member in self.ask("leave_group", request, 5).members]

    def commit(
        self,
        offset: int,
        *,
        group_id: str = "g",
        topic: str = "orders",
        partition: int = 0,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str | None = None,
        version: int = 8,
    ) -> int:
        part = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        code: int = self.ask("offset_commit", request, version).topics[0].partitions[0].error_code
        return code

    def txn_commit(
        self,
        offset: int,
        *,
        producer_id: int = 7,
        group_id: str = "g",
        topic: str = "orders",
        partition: int = 0,
        member_id: str = "",
        generation: int = -1,
        version: int = 3,
    ) -> int:
        part = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=member_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        code: int = self.ask("txn_offset_commit", request, version).topics[0].partitions[0].error_code
        return code

    def end_transaction(self, *, commit: bool, producer_id: int = 7) -> None:
        marker = EndTxnMarker(producer_id, 0, commit, 0)
        self.log.append(marker)
        self.shard.end_transaction(marker)
        self.check()

    def fetch(
        self,
        topic: str = "orders",
        partition: int = 0,
        *,
        group_id: str = "g",
        stable: bool = False,
    ) -> tuple[int, int]:
        """The committed offset and the error code of one partition."""
        asked = OffsetFetchRequestGroup(
            group_id=group_id,
            topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
        )
        request = OffsetFetchRequest(groups=[asked], require_stable=stable)
        found = self.ask("offset_fetch", request, 8).groups[0].topics[0].partitions[0]
        return found.committed_offset, found.error_code

    def stabilize(self, members: int = 1, **options: Any) -> tuple[int, list[str]]:
        """A stable group of new members; its generation and member ids, the leader first."""
        names: list[str] = []
        generation = 0
        for _ in range(members):
            name, ticket = self.enter(**options)
            names.append(name)
            for other in names[:-1]:
                ticket = self.join(other, **options)
            generation = self.answers[ticket].generation_id
            self.sync_all(names, generation)
        return generation, names

    def sync_all(self, names: list[str], generation: int) -> None:
        leader = self.group().leader
        assert leader is not None
        tickets = [self.sync(name, generation) for name in names if name != leader]
        tickets.append(self.sync(leader, generation, {name: name.encode() for name in names}))
        assert all(self.answers[ticket].error_code == 0 for ticket in tickets)


def classic_view(shard: GroupShard, group_id: str) -> Any:
    """What a record says about a group."""
    group = shard.groups[group_id]
    assert isinstance(group, ClassicGroup)
    members = [
        (
            member.member_id,
            member.instance_id,
            member.client_id,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.metadata(group.protocol),
            member.assignment,
        )
        for member in group.members.values()
    ]
    return (
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        group.state_timestamp,
        group.topics,
        dict(group.static),
        members,
    )


def classic_views(shard: GroupShard) -> dict[str, Any]:
    """All classic groups that the log has records of."""
    return {
        name: classic_view(shard, name)
        for name, group in shard.groups.items()
        if group.persisted and isinstance(group, ClassicGroup)
    }


def check_group(group: ClassicGroup) -> None:
    """What holds for a classic group between any two operations."""
    members = group.members
    assert (group.state is State.EMPTY) <= (not members)
    assert (group.state in (State.STABLE, State.COMPLETING)) <= bool(members)
    # A group that was one of the consumer protocol has no leader until it has rebalanced.
    is_due = group.state is State.PREPARING or TimerKey(group.group_id, REBALANCE) in group.context.timers
    assert group.leader in members or (group.leader is None and (not members or is_due))
    assert group.static == {m.instance_id: n for n, m in members.items() if m.instance_id is not None}
    assert all(name == member.member_id for name, member in members.items())
    assert group.pending.isdisjoint(members)
    assert all(TimerKey(group.group_id, SESSION, name) in group.context.timers for name in group.pending)
    assert (TimerKey(group.group_id, JOIN) in group.context.timers) == (group.state is State.PREPARING)
    assert group.pending_sync <= set(members)
    assert not group.pending_sync or group.state in (State.COMPLETING, State.STABLE)
    for member in members.values():
        assert member.join is None or group.state is State.PREPARING
        # Nobody may stay for ever without a sign of life; who waits is looked after by the rebalance.
        has_timer = TimerKey(group.group_id, SESSION, member.member_id) in group.context.timers
        assert has_timer or (member.waits and not member.is_new)
        assert member.sync is None or group.state is State.COMPLETING
