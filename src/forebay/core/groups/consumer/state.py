"""The persistent state of a KIP-848 group, and the only way in which it changes: by applying records."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import field
from typing import Any

from forebay.core.groups.assigned_partitions import (
    Partitions,
    TopicPartition,
    read_partitions,
    write_partitions,
)
from forebay.core.groups.consumer.members import ConsumerMember, Subscription
from forebay.core.groups.draft import GroupDraft, RecordKinds
from forebay.core.groups.overlay import Overlay
from forebay.lazy import dataclass
from forebay.wire.fields import Message
from forebay.wire.state.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)

RECORDS = RecordKinds(
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
)


@dataclass(slots=True)
class ConsumerState:
    epoch: int = 0
    """Raised whenever a new target has to be made."""
    metadata_hash: int = 0
    """Hash of the subscribed topics as they were when the epoch was last raised."""
    assignment_epoch: int = 0
    """The group epoch that the target was made for."""
    members: MutableMapping[str, ConsumerMember] = field(default_factory=dict)
    subscriptions: MutableMapping[Subscription, int] = field(default_factory=dict)
    """The number of members with each."""
    targets: MutableMapping[str, Partitions] = field(default_factory=dict)
    owners: MutableMapping[TopicPartition, str] = field(default_factory=dict)
    """The member that has a partition, or has not confirmed yet that it gave it up; from the assignments."""
    static: MutableMapping[str, str] = field(default_factory=dict)
    """Member ids by instance id."""

    def overlaid(self) -> ConsumerState:
        return ConsumerState(
            self.epoch,
            self.metadata_hash,
            self.assignment_epoch,
            Overlay(self.members),
            Overlay(self.subscriptions),
            Overlay(self.targets),
            Overlay(self.owners),
            Overlay(self.static),
        )

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, frozenset())

    def apply(self, key: Message, value: Any) -> None:
        match key:
            case ConsumerGroupMetadataKey():
                self.epoch = 0 if value is None else value.epoch
                self.metadata_hash = 0 if value is None else value.metadata_hash
            case ConsumerGroupMemberMetadataKey():
                self._apply_member(key.member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self.assignment_epoch = 0 if value is None else value.assignment_epoch
            case ConsumerGroupTargetAssignmentMemberKey():
                self._apply_target(key.member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey():
                self._apply_current(key.member_id, value)

    def _apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self._count(old.subscription, -1)
            if old.instance_id is not None and self.static.get(old.instance_id) == member_id:
                del self.static[old.instance_id]
        if value is None:
            if old is not None:
                self._disown(old)
            return
        member = (old or ConsumerMember(member_id=member_id)).with_metadata(value)
        self.members[member_id] = member
        self._count(member.subscription, 1)
        if member.instance_id is not None:
            self.static[member.instance_id] = member_id

    def _count(self, subscription: Subscription, change: int) -> None:
        count = self.subscriptions.get(subscription, 0) + change
        if count:
            self.subscriptions[subscription] = count
        else:
            del self.subscriptions[subscription]

    def _apply_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = read_partitions(value.topic_partitions)

    def _apply_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        old = self.members.get(member_id)
        if old is None and value is None:
            return  # the rest of a member whose metadata is already deleted
        new = ConsumerMember(member_id=member_id)
        if old is not None:
            self._disown(old)
        else:
            # Compaction leaves this record before the member's own, if that was written again later.
            self._count(new.subscription, 1)
        member = (old or new).with_current(value or new.current())
        self.members[member_id] = member
        for partition in member.assigned | member.revoking:
            self.owners[partition] = member_id

    def _disown(self, member: ConsumerMember) -> None:
        for partition in member.assigned | member.revoking:
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]


class Draft(GroupDraft[ConsumerState]):
    # -- the group -----------------------------------------------------------------------------------

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        self._write(ConsumerGroupMetadataKey(group_id=self._group_id), value)

    def set_assignment_epoch(self, epoch: int) -> None:
        value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
        self._write(ConsumerGroupTargetAssignmentMetadataKey(group_id=self._group_id), value)

    def delete(self) -> None:
        """Delete everything but the offsets; the group's own record last."""
        for member_id in list(self.state.members):
            self.remove_member(member_id)
        self._write(ConsumerGroupTargetAssignmentMetadataKey(group_id=self._group_id), None)
        self._write(ConsumerGroupMetadataKey(group_id=self._group_id), None)

    # -- its members ---------------------------------------------------------------------------------

    def set_member(self, member: ConsumerMember) -> None:
        key = ConsumerGroupMemberMetadataKey(group_id=self._group_id, member_id=member.member_id)
        self._write(key, member.metadata())

    def set_target(self, member_id: str, target: Partitions) -> None:
        key = ConsumerGroupTargetAssignmentMemberKey(group_id=self._group_id, member_id=member_id)
        value = ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=write_partitions(TopicPartitions, target)
        )
        self._write(key, value)

    def set_current(self, member: ConsumerMember) -> None:
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id=self._group_id, member_id=member.member_id)
        self._write(key, member.current())

    def remove_member(self, member_id: str) -> None:
        ids = {"group_id": self._group_id, "member_id": member_id}
        self._write(ConsumerGroupCurrentMemberAssignmentKey(**ids), None)
        self._write(ConsumerGroupTargetAssignmentMemberKey(**ids), None)
        self._write(ConsumerGroupMemberMetadataKey(**ids), None)

    def replace_member(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Give a member's place, target and assignment to another."""
        target = self.state.target(old.member_id)
        self.remove_member(old.member_id)
        self.set_member(new)
        self.set_target(new.member_id, target)
        self.set_current(new)
