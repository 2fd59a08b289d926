"""The persistent state of a share group, and the only way in which it changes: by applying records.

For each topic the group knows the partitions whose state share coordinators were asked to keep:

    (unknown)      --(somebody subscribes, or its offsets are set)-->   initializing
    initializing   --(a share coordinator has it)------------------->   initialized: may be assigned
    either         --(topic or its offsets or the group deleted)---->   deleting
    deleting       --(no share coordinator has it any more)--------->   (unknown)

The mark `deleting` is on the whole topic, and its partitions stay listed until each is deleted: so a
coordinator that takes over knows what is left to do.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import field
from typing import Any, NamedTuple

from forebay.core.groups.assigned_partitions import Partitions, read_partitions, write_partitions
from forebay.core.groups.draft import GroupDraft, RecordKinds
from forebay.core.groups.overlay import Overlay
from forebay.core.groups.share.members import ShareMember
from forebay.core.step import StateRecord
from forebay.lazy import dataclass
from forebay.wire.fields import Message
from forebay.wire.state.share_group import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupEpochFloorKey,
    ShareGroupEpochFloorValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartitions,
    TopicPartitionsInfo,
)
from forebay.wire.state.versioned import pack

RECORDS = RecordKinds(
    (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    (ShareGroupMetadataKey, ShareGroupMetadataValue),
    (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
)
_NO_PARTITIONS: frozenset[int] = frozenset()


def epoch_floor_record(epoch: int) -> StateRecord:
    key, value = ShareGroupEpochFloorKey(), ShareGroupEpochFloorValue(epoch=epoch)
    return StateRecord(pack(key, key.MIN_VERSION), pack(value, 0))


class TopicState(NamedTuple):
    """The partitions of a topic for which share coordinators keep state for this group."""

    name: str
    initializing: frozenset[int] = _NO_PARTITIONS
    initialized: frozenset[int] = _NO_PARTITIONS
    deleting: bool = False

    @property
    def partitions(self) -> frozenset[int]:
        return self.initializing | self.initialized

    def with_initialized(self, partition: int) -> TopicState:
        return self._replace(
            initializing=self.initializing - {partition}, initialized=self.initialized | {partition}
        )

    def without(self, partitions: frozenset[int]) -> TopicState:
        return self._replace(
            initializing=self.initializing - partitions, initialized=self.initialized - partitions
        )


Topics = Mapping[bytes, TopicState]


@dataclass(slots=True)
class ShareState:
    epoch: int = 0
    """Raised whenever a new target has to be made; also the state epoch of partitions initialized then."""
    metadata_hash: int = 0
    """Hash of the subscribed topics as they were when the epoch was last raised."""
    assignment_epoch: int = 0
    """The group epoch that the target was made for."""
    assigned_at_ms: int = 0
    """When it was made, in wall time."""
    members: MutableMapping[str, ShareMember] = field(default_factory=dict)
    subscribers: MutableMapping[str, int] = field(default_factory=dict)
    """By name of a topic, the number of members that subscribe to it."""
    targets: MutableMapping[str, Partitions] = field(default_factory=dict)
    topics: Topics = field(default_factory=dict)
    changes: int = field(default=0, compare=False)
    """The number of records that were applied: the same number means the same state."""

    def overlaid(self) -> ShareState:
        return ShareState(
            self.epoch,
            self.metadata_hash,
            self.assignment_epoch,
            self.assigned_at_ms,
            Overlay(self.members),
            Overlay(self.subscribers),
            Overlay(self.targets),
            self.topics,
            self.changes,
        )

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, frozenset())

    def subscribed(self) -> frozenset[str]:
        """The names that any member subscribes to."""
        return frozenset(self.subscribers)

    def apply(self, key: Message, value: Any) -> None:
        self.changes += 1
        match key:
            case ShareGroupMetadataKey():
                self.epoch = 0 if value is None else value.epoch
                self.metadata_hash = 0 if value is None else value.metadata_hash
            case ShareGroupMemberMetadataKey():
                self._apply_member(key.member_id, value)
            case ShareGroupTargetAssignmentMetadataKey():
                self.assignment_epoch = 0 if value is None else value.assignment_epoch
                self.assigned_at_ms = 0 if value is None else value.assignment_timestamp_ms
            case ShareGroupTargetAssignmentMemberKey():
                self._apply_target(key.member_id, value)
            case ShareGroupCurrentMemberAssignmentKey():
                self._apply_current(key.member_id, value)
            case ShareGroupStatePartitionMetadataKey():
                self.topics = {} if value is None else _read_topics(value)

    def _apply_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self._count(old.topic_names, -1)
        if value is not None:
            member = (old or ShareMember(member_id=member_id)).with_metadata(value)
            self.members[member_id] = member
            self._count(member.topic_names, 1)

    def _count(self, names: frozenset[str], change: int) -> None:
        for name in names:
            count = self.subscribers.get(name, 0) + change
            if count:
                self.subscribers[name] = count
            else:
                del self.subscribers[name]

    def _apply_target(self, member_id: str, value: ShareGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = read_partitions(value.topic_partitions)

    def _apply_current(self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None) -> None:
        # Compaction may have left this record before the member's own, if that was written again later.
        old = self.members.get(member_id)
        if value is not None:
            self.members[member_id] = (old or ShareMember(member_id=member_id)).with_current(value)
        elif old is not None:
            self.members[member_id] = old.with_current(ShareMember(member_id=member_id).current())


class Draft(GroupDraft[ShareState]):
    # -- the group -----------------------------------------------------------------------------------

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        self._write(ShareGroupMetadataKey(group_id=self._group_id), value)

    def set_assignment_epoch(self, epoch: int, wall_ms: int) -> None:
        value = ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp_ms=wall_ms
        )
        self._write(ShareGroupTargetAssignmentMetadataKey(group_id=self._group_id), value)

    def set_topics(self, topics: Topics) -> None:
        """Record the topics. Those without any known partitions are left out."""
        kept = {topic_id: topic for topic_id, topic in topics.items() if topic.partitions}
        if kept != self.state.topics:
            self._write(ShareGroupStatePartitionMetadataKey(group_id=self._group_id), _write_topics(kept))

    def delete(self) -> None:
        """Delete the group; its own record last."""
        for member_id in list(self.state.members):
            self.remove_member(member_id)
        self._write(ShareGroupTargetAssignmentMetadataKey(group_id=self._group_id), None)
        self._write(ShareGroupStatePartitionMetadataKey(group_id=self._group_id), None)
        self._write(ShareGroupMetadataKey(group_id=self._group_id), None)

    # -- its members ---------------------------------------------------------------------------------

    def set_member(self, member: ShareMember) -> None:
        key = ShareGroupMemberMetadataKey(group_id=self._group_id, member_id=member.member_id)
        self._write(key, member.metadata())

    def set_target(self, member_id: str, target: Partitions) -> None:
        key = ShareGroupTargetAssignmentMemberKey(group_id=self._group_id, member_id=member_id)
        value = ShareGroupTargetAssignmentMemberValue(
            topic_partitions=write_partitions(TopicPartitions, target)
        )
        self._write(key, value)

    def set_current(self, member: ShareMember) -> None:
        key = ShareGroupCurrentMemberAssignmentKey(group_id=self._group_id, member_id=member.member_id)
        self._write(key, member.current())

    def remove_member(self, member_id: str) -> None:
        ids = {"group_id": self._group_id, "member_id": member_id}
        self._write(ShareGroupCurrentMemberAssignmentKey(**ids), None)
        self._write(ShareGroupTargetAssignmentMemberKey(**ids), None)
        self._write(ShareGroupMemberMetadataKey(**ids), None)


def _read_topics(value: ShareGroupStatePartitionMetadataValue) -> Topics:
    topics: dict[bytes, TopicState] = {}
    for each in value.initializing_topics:
        topics[each.topic_id] = TopicState(each.topic_name, initializing=frozenset(each.partitions))
    for each in value.initialized_topics:
        topic = topics.get(each.topic_id, TopicState(each.topic_name))
        topics[each.topic_id] = topic._replace(initialized=frozenset(each.partitions))
    for deleted in value.deleting_topics:
        if deleted.topic_id in topics:
            topics[deleted.topic_id] = topics[deleted.topic_id]._replace(deleting=True)
    return topics


def _write_topics(topics: Topics) -> ShareGroupStatePartitionMetadataValue:
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=[
            TopicPartitionsInfo(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.initializing)
            )
            for topic_id, topic in topics.items()
            if topic.initializing
        ],
        initialized_topics=[
            TopicPartitionsInfo(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.initialized)
            )
            for topic_id, topic in topics.items()
            if topic.initialized
        ],
        deleting_topics=[
            TopicInfo(topic_id=topic_id, topic_name=topic.name)
            for topic_id, topic in topics.items()
            if topic.deleting
        ],
    )
