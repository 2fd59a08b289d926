"""The committed offsets of all groups of a shard.

Offsets that a transaction commits wait beside the others until its marker comes; then they count, or vanish.
A plain commit may come between: the later of the two in the log wins. Compaction keeps the order of records,
so the count of replayed records says which was later, also after a restart.

Each offset has the id of its topic, unless an earlier version has written it: a topic may be deleted and
created again while no broker coordinates the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from sys import intern
from typing import NamedTuple

from forebay.core.step import StateRecord
from forebay.wire.batch import NO_PRODUCER_ID
from forebay.wire.fields import ZERO_UUID
from forebay.wire.state.offset_commit import OffsetCommitKey, OffsetCommitValue
from forebay.wire.state.versioned import pack

KEY_VERSIONS = (0, 1)
_KEY_VERSION = 1
_VALUE_VERSION = 4
_VALUE_VERSION_WITHOUT_ID = 3
_VALUE_VERSION_WITH_EXPIRY = 1


class Offset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    """-1 unless the client chose one, which is possible in the oldest versions only."""
    position: int
    """The position of its record among all that were replayed."""
    topic_id: bytes = ZERO_UUID
    """All zero if it is not known."""


TopicOffsets = dict[str, dict[int, Offset]]
"""By topic and partition."""


class Offsets:
    def __init__(self) -> None:
        self._committed: dict[str, TopicOffsets] = {}
        self._pending: dict[int, dict[str, TopicOffsets]] = {}
        """By producer id and group."""
        self._open: dict[str, set[int]] = {}
        """The producers with pending offsets, by group."""
        self.position = 0
        self._topic_ids: dict[bytes, bytes] = {}
        """One object for all offsets of a topic."""

    def contents(self) -> tuple[object, ...]:
        """All offsets that were replayed and still count, for comparison with another table."""
        return self._committed, self._pending, self._open

    # -- replay --------------------------------------------------------------------------------------

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int) -> None:
        self.position += 1
        if value is None:
            self._remove(key.group, key.topic, key.partition)
            return
        groups = self._committed
        if producer_id != NO_PRODUCER_ID:
            groups = self._pending.setdefault(producer_id, {})
            self._open.setdefault(key.group, set()).add(producer_id)
        topics = groups.setdefault(key.group, {})
        topics.setdefault(intern(key.topic), {})[key.partition] = Offset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            self.position,
            self._topic_ids.setdefault(value.topic_id, value.topic_id),
        )

    def end_transaction(self, producer_id: int, commit: bool) -> list[str]:
        """End a transaction; returns the groups with offsets in it."""
        groups = self._pending.pop(producer_id, {})
        for group_id, topics in groups.items():
            self._open[group_id].discard(producer_id)
            if not self._open[group_id]:
                del self._open[group_id]
            if commit:
                self._materialize(group_id, topics)
        return list(groups)

    def _materialize(self, group_id: str, topics: TopicOffsets) -> None:
        for topic, partitions in topics.items():
            for partition, offset in partitions.items():
                current = self.get(group_id, topic, partition)
                if current is None or offset.position > current.position:
                    self._committed.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        _discard(self._committed, group_id, topic, partition)
        for producer_id in self._open.get(group_id, ()):
            _discard(self._pending[producer_id], group_id, topic, partition)
        self._close_emptied(group_id)

    def _close_emptied(self, group_id: str) -> None:
        producers = self._open.get(group_id, set())
        for producer_id in [each for each in producers if group_id not in self._pending[each]]:
            producers.discard(producer_id)
            if not self._pending[producer_id]:
                del self._pending[producer_id]
        if not producers:
            self._open.pop(group_id, None)

    # -- questions -----------------------------------------------------------------------------------

    def get(self, group_id: str, topic: str, partition: int) -> Offset | None:
        return self._committed.get(group_id, {}).get(topic, {}).get(partition)

    def group_ids(self) -> Iterable[str]:
        """The groups with committed offsets."""
        return self._committed.keys()

    def of_group(self, group_id: str) -> TopicOffsets:
        return self._committed.get(group_id, {})

    def has_any(self, group_id: str) -> bool:
        """True if offsets of this group are stored, even if only for a transaction that is not decided."""
        return group_id in self._committed or group_id in self._open

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return any(
            partition in self._pending[producer_id].get(group_id, {}).get(topic, {})
            for producer_id in self._open.get(group_id, ())
        )

    def stored(self, group_id: str) -> Iterator[tuple[str, int, Offset]]:
        """All stored offsets of a group, committed or pending; a partition may occur more than once."""
        sources = [self.of_group(group_id)]
        sources += [self._pending[each].get(group_id, {}) for each in self._open.get(group_id, ())]
        for topics in sources:
            for topic, partitions in topics.items():
                for partition, offset in partitions.items():
                    yield topic, partition, offset

    def tombstones(self, group_id: str) -> list[StateRecord]:
        """The records that delete all stored offsets of a group."""
        found = dict.fromkeys((topic, partition) for topic, partition, _ in self.stored(group_id))
        return [tombstone(group_id, topic, partition) for topic, partition in found]


def commit_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> StateRecord:
    # Only one version can say when an offset expires. It lacks the leader epoch and the topic id.
    version = _VALUE_VERSION_WITHOUT_ID if value.topic_id == ZERO_UUID else _VALUE_VERSION
    if value.expire_timestamp >= 0:
        version = _VALUE_VERSION_WITH_EXPIRY
    return StateRecord(_key(group_id, topic, partition), pack(value, version))


def tombstone(group_id: str, topic: str, partition: int) -> StateRecord:
    return StateRecord(_key(group_id, topic, partition), None)


def _key(group_id: str, topic: str, partition: int) -> bytes:
    return pack(OffsetCommitKey(group=group_id, topic=topic, partition=partition), _KEY_VERSION)


def _discard(groups: dict[str, TopicOffsets], group_id: str, topic: str, partition: int) -> None:
    partitions = groups.get(group_id, {}).get(topic)
    if partitions is None or partitions.pop(partition, None) is None or partitions:
        return
    del groups[group_id][topic]
    if not groups[group_id]:
        del groups[group_id]
