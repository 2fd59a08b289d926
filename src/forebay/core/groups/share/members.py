"""A member of a share group: its subscription and its assignment. Immutable: a change makes a new one."""

from __future__ import annotations

from dataclasses import replace

from forebay.core.groups.assigned_partitions import NOTHING, Partitions, read_partitions, write_partitions
from forebay.core.step import RequestInfo
from forebay.lazy import dataclass
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from forebay.wire.state.share_group import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    TopicPartitions,
)

LEAVE_EPOCH = -1
_STABLE = 0
"""The only state of such a member: partitions need not be given up before others get them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = NOTHING

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
        )

    def with_current(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=read_partitions(value.assigned_partitions),
        )

    def updated(self, request: ShareGroupHeartbeatRequest, info: RequestInfo) -> ShareMember:
        """The member with the fields of a heartbeat; omitted fields stay as before."""
        names = request.subscribed_topic_names
        is_same_client = (info.client_id, info.client_host) == (self.client_id, self.client_host)
        if names is None and not request.rack_id and is_same_client:
            return self  # nearly all heartbeats
        return replace(
            self,
            rack_id=request.rack_id or self.rack_id,
            client_id=info.client_id,
            client_host=info.client_host,
            topic_names=self.topic_names if names is None else frozenset(names),
        )

    def moved_to(self, epoch: int, assigned: Partitions) -> ShareMember:
        """The member in a new epoch. It may repeat the previous one once, if the response was lost."""
        previous = self.previous_epoch if epoch == self.epoch else self.epoch
        return replace(self, epoch=epoch, previous_epoch=previous, assigned=assigned)

    def metadata(self) -> ShareGroupMemberMetadataValue:
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
        )

    def current(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=_STABLE,
            assigned_partitions=write_partitions(TopicPartitions, self.assigned),
        )
