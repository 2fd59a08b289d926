"""Replays __consumer_offsets: each record changes its group, of whatever kind."""

from __future__ import annotations

from forebay.core.groups.classic.group import KEY_VERSION as CLASSIC_KEY_VERSION
from forebay.core.groups.classic.requests import ClassicGroup
from forebay.core.groups.consumer.heartbeat import ConsumerGroup
from forebay.core.groups.consumer.state import RECORDS as CONSUMER_RECORDS
from forebay.core.groups.draft import RecordKinds
from forebay.core.groups.group import Context, Group
from forebay.core.groups.offsets import KEY_VERSIONS as OFFSET_KEY_VERSIONS
from forebay.core.groups.offsets import Offsets
from forebay.core.groups.share.offsets import ShareGroup
from forebay.core.groups.share.state import RECORDS as SHARE_RECORDS
from forebay.core.step import StateRecord
from forebay.wire.batch import EndTxnMarker
from forebay.wire.state.group_metadata import GroupMetadataKey, GroupMetadataValue
from forebay.wire.state.offset_commit import OffsetCommitKey, OffsetCommitValue
from forebay.wire.state.share_group import ShareGroupEpochFloorKey, ShareGroupEpochFloorValue
from forebay.wire.state.versioned import unpack, version_of


class Replay:
    def __init__(self, context: Context, groups: dict[str, Group], offsets: Offsets) -> None:
        self._context = context
        self._groups = groups
        self._offsets = offsets

    def replay(self, record: StateRecord, producer_id: int) -> None:
        version = version_of(record.key)
        if version in OFFSET_KEY_VERSIONS:
            self._replay_offset(record, producer_id)
        elif version == CLASSIC_KEY_VERSION:
            self._replay_classic(record)
        elif version in CONSUMER_RECORDS:
            self._replay_assigned(record, CONSUMER_RECORDS, ConsumerGroup)
        elif version in SHARE_RECORDS:
            self._replay_assigned(record, SHARE_RECORDS, ShareGroup)
        elif version == ShareGroupEpochFloorKey.MIN_VERSION and record.value is not None:
            self._context.share_epoch_floor = unpack(ShareGroupEpochFloorValue, record.value).epoch
        # Records of unknown types come from a newer version, and are skipped.

    def _replay_offset(self, record: StateRecord, producer_id: int) -> None:
        key = unpack(OffsetCommitKey, record.key)
        value = None if record.value is None else unpack(OffsetCommitValue, record.value)
        self._offsets.replay(key, value, producer_id)
        if value is None:
            self.forget_idle(key.group)
        elif key.group not in self._groups:
            self._groups[key.group] = ClassicGroup(key.group, self._context)

    def _replay_classic(self, record: StateRecord) -> None:
        group_id = unpack(GroupMetadataKey, record.key).group
        group = self._groups.get(group_id)
        if record.value is not None:
            if not isinstance(group, ClassicGroup):
                group = self._groups[group_id] = ClassicGroup(group_id, self._context)
            group.replay(unpack(GroupMetadataValue, record.value))
        elif isinstance(group, ClassicGroup):
            self._deleted(group_id)

    def _replay_assigned(
        self, record: StateRecord, kinds: RecordKinds, kind: type[ConsumerGroup] | type[ShareGroup]
    ) -> None:
        """A record about a group whose partitions the broker assigns."""
        key, value = kinds.read(record)
        group = self._groups.get(key.group_id)
        if not isinstance(group, kind):
            if value is None:
                return  # the rest of a group that is deleted, or has become a classic one
            group = self._groups[key.group_id] = kind(key.group_id, self._context)
        group.replay(key, value)
        if not group.persisted:
            self._deleted(key.group_id)

    def _deleted(self, group_id: str) -> None:
        """Offsets left without a group are treated like those of a program that only stores offsets."""
        del self._groups[group_id]
        if self._offsets.has_any(group_id):
            self._groups[group_id] = ClassicGroup(group_id, self._context)

    def end_transaction(self, marker: EndTxnMarker) -> None:
        for group_id in self._offsets.end_transaction(marker.producer_id, marker.commit):
            self.forget_idle(group_id)

    def forget_idle(self, group_id: str) -> None:
        """Drop a group that has no members and no records in the log."""
        group = self._groups.get(group_id)
        if (
            group is not None
            and group.is_idle
            and not group.persisted
            and not self._offsets.has_any(group_id)
        ):
            del self._groups[group_id]
