"""The two protocols by which members share partitions: the classic one and the consumer one (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.client import GROUP, check
from forebay.sim.actors.consumers.members import REBALANCE_MS, SESSION_MS, Member
from forebay.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from forebay.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from forebay.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from forebay.wire.state.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
)
from forebay.wire.state.consumer_protocol import TopicPartition as AssignedPartitions
from forebay.wire.state.versioned import pack

_ASSIGNOR = "range"
_PROTOCOL_VERSION = 1
_LEAVE_EPOCH = -1


class ClassicMember(Member):
    """Joins and syncs; the leader of the generation assigns the partitions."""

    _settled = False
    """True if it has its part of a generation."""

    async def stay(self) -> None:
        if self._settled:
            request = HeartbeatRequest(
                group_id=self.group, generation_id=self.epoch, member_id=self.member_id
            )
            response = await self.client.ask_coordinator(GROUP, self.group, request, HeartbeatResponse)
            check(response.error_code)
        else:
            await self._enter()

    async def _enter(self) -> None:
        self.own_nothing()
        joined = await self._join()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            joined = await self._join()
        check(joined.error_code)
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        leads = joined.leader == self.member_id
        shares = self._shares([each.member_id for each in joined.members]) if leads else {}
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=_ASSIGNOR,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(share))
                for member_id, share in shares.items()
            ],
        )
        synced = await self.client.ask_coordinator(GROUP, self.group, request, SyncGroupResponse)
        check(synced.error_code)
        await self.own(_assigned(bytes(synced.assignment)))
        self._settled = True

    async def _join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=sorted({topic for topic, _ in self.partitions}))
        metadata = pack(subscription, _PROTOCOL_VERSION)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=_ASSIGNOR, metadata=metadata)],
        )
        return await self.client.ask_coordinator(GROUP, self.group, request, JoinGroupResponse)

    def _shares(self, member_ids: list[str]) -> dict[str, list[TopicPartition]]:
        shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in member_ids}
        for number, at in enumerate(self.partitions):
            shares[member_ids[number % len(member_ids)]].append(at)
        return shares

    async def leave(self) -> None:
        if self.member_id:
            request = LeaveGroupRequest(
                group_id=self.group, members=[MemberIdentity(member_id=self.member_id)]
            )
            response = await self.client.ask_coordinator(GROUP, self.group, request, LeaveGroupResponse)
            check(response.error_code)

    def refused(self, code: ErrorCode) -> None:
        self._settled = False
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.forget()

    def forget(self) -> None:
        self._settled = False
        super().forget()


def _assignment(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    assigned = [AssignedPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]
    return pack(ConsumerProtocolAssignment(assigned_partitions=assigned), _PROTOCOL_VERSION)


def _assigned(data: bytes) -> list[TopicPartition]:
    found = read_assignment(data).assigned_partitions
    return [(each.topic, index) for each in found for index in each.partitions]


class ConsumerMember(Member):
    """Sends its owned partitions with every heartbeat, and gets its assignment from the broker."""

    _names: dict[bytes, str]

    async def stay(self) -> None:
        if not self.member_id:
            self.member_id, self.epoch = f"{self.name}-{self._lives}", 0
        if self.epoch == 0:
            self.own_nothing()
            self._names = await self._topic_names()
        response = await self._heartbeat(self.epoch)
        self.epoch = response.member_epoch
        assert response.assignment is not None, "a full heartbeat gets a full answer"
        given = response.assignment.topic_partitions
        await self.own((self._names[each.topic_id], index) for each in given for index in each.partitions)

    async def _topic_names(self) -> dict[bytes, str]:
        found = await self.client.metadata(sorted({topic for topic, _ in self.partitions}))
        for topic in found.topics:
            check(topic.error_code)
        return {topic.topic_id: topic.name or "" for topic in found.topics}

    async def _heartbeat(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        owned: dict[str, list[int]] = {}
        for topic, index in self.positions:
            owned.setdefault(topic, []).append(index)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=sorted(set(self._names.values())),
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=owned[name])
                for topic_id, name in self._names.items()
                if name in owned
            ],
        )
        response = await self.client.ask_coordinator(
            GROUP, self.group, request, ConsumerGroupHeartbeatResponse
        )
        check(response.error_code)
        return response

    async def leave(self) -> None:
        if self.epoch > 0:
            await self._heartbeat(_LEAVE_EPOCH)

    def refused(self, code: ErrorCode) -> None:
        """With a stale epoch it continues: the next heartbeat returns the new one."""
        if code is not ErrorCode.STALE_MEMBER_EPOCH:
            self.epoch = 0
            self.own_nothing()
