"""A member of a KIP-848 group: its subscription and its assignment.

Members are immutable: a change makes a new one, and a record of it.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from forebay.core.groups.assigned_partitions import NOTHING, Partitions, read_partitions, write_partitions
from forebay.core.step import RequestInfo
from forebay.lazy import dataclass
from forebay.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from forebay.wire.state.consumer_group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""Sent by a static member that will be back; also its epoch until it is back."""


class MemberState(IntEnum):
    STABLE = 0
    """It has everything it is meant to have."""
    UNREVOKED = 1
    """It was asked to give partitions up, and has not confirmed it yet."""
    UNRELEASED = 2
    """It waits for partitions that others have not given up yet."""


class Classic(NamedTuple):
    """The additional state of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, the member's favourite first."""


class Viewer(NamedTuple):
    """Members that are equal in these fields see the same topics."""

    pattern: str
    principal: str
    host: str


class Subscription(NamedTuple):
    """What a member reads: topics by name, and those that its pattern matches."""

    names: frozenset[str]
    viewer: Viewer | None
    """None for a member without a pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    """Set if the member subscribes by a pattern: that matches only topics which this principal may see."""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: Classic | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING

    @property
    def subscription(self) -> Subscription:
        pattern = self.topic_regex
        viewer = None if pattern is None else Viewer(pattern, self.principal, self.client_host)
        return Subscription(self.topic_names, viewer)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def subscribes_as(self, other: ConsumerMember) -> bool:
        return self.topic_names == other.topic_names and self.topic_regex == other.topic_regex

    def sees_as(self, other: ConsumerMember) -> bool:
        return (self.principal, self.client_host) == (other.principal, other.client_host)

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        classic = value.classic_member_metadata
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            principal=value.principal,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None if classic is None else _read_classic(classic),
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=read_partitions(value.assigned_partitions),
            revoking=read_partitions(value.partitions_pending_revocation),
        )

    def updated(self, request: ConsumerGroupHeartbeatRequest, info: RequestInfo) -> ConsumerMember:
        """The member with the fields of a heartbeat; omitted fields stay as before."""
        if self._is_repeated(request, info):
            return self
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        timeout_ms = request.rebalance_timeout_ms
        # An empty pattern cancels the subscription: librdkafka sends it when it has none.
        topic_regex = self.topic_regex if regex is None else regex or None
        return replace(
            self,
            instance_id=request.instance_id or self.instance_id,
            rack_id=request.rack_id or self.rack_id,
            client_id=info.client_id,
            client_host=info.client_host,
            principal="" if topic_regex is None else info.principal,
            topic_names=self.topic_names if names is None else frozenset(names),
            topic_regex=topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
            assignor=request.server_assignor or self.assignor,
            classic=None,
        )

    def _is_repeated(self, request: ConsumerGroupHeartbeatRequest, info: RequestInfo) -> bool:
        """True for nearly all heartbeats: all fields are omitted, and the client is the same."""
        return (
            request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.rebalance_timeout_ms < 0
            and not (request.instance_id or request.rack_id or request.server_assignor)
            and self.classic is None
            and (info.client_id, info.client_host) == (self.client_id, self.client_host)
            and (self.topic_regex is None or info.principal == self.principal)
        )

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            principal=self.principal,
            subscribed_topic_names=sorted(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=None if self.classic is None else _write_classic(self.classic),
        )

    def current(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=write_partitions(TopicPartitions, self.assigned),
            partitions_pending_revocation=write_partitions(TopicPartitions, self.revoking),
        )

    def has_same_current(self, other: ConsumerMember) -> bool:
        return (self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking) == (
            other.epoch,
            other.previous_epoch,
            other.state,
            other.assigned,
            other.revoking,
        )


def _read_classic(value: ClassicMemberMetadata) -> Classic:
    protocols = tuple((each.name, bytes(each.metadata)) for each in value.supported_protocols)
    return Classic(value.session_timeout_ms, protocols)


def _write_classic(classic: Classic) -> ClassicMemberMetadata:
    protocols = [ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols]
    return ClassicMemberMetadata(session_timeout_ms=classic.session_timeout_ms, supported_protocols=protocols)
