"""Committing and deleting offsets: from a request to records and a response.

A partition's error is a value in the response; an error of the whole group is repeated for every partition.
The group decides if the caller may commit; `Claim` is the identity that the caller claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from forebay.core.groups.group import Context, Group
from forebay.core.groups.offsets import Offsets, commit_record, tombstone
from forebay.core.step import Now, RequestInfo, StateRecord
from forebay.errors import ErrorCode
from forebay.lazy import dataclass
from forebay.wire.batch import TIMESTAMP_MAX
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from forebay.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from forebay.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from forebay.wire.state.offset_commit import OffsetCommitValue

TOPIC_IDS_FROM = 10
"""OffsetCommit and OffsetFetch name topics by id from this version on."""


RECORDS_BYTES_MAX = 8 << 20
"""Maximum size of the records of one request. They are one batch, which replicas fetch and keep in one
piece. Each record repeats the names of the group and the topic, so a small request can produce a very
large batch."""


@dataclass(slots=True, eq=False)
class _Committer:
    """Decides about the partitions one by one, and collects the records."""

    context: Context
    group_id: str
    error: ErrorCode
    now_ms: int
    expire_timestamp: int = -1
    records: list[StateRecord] = field(default_factory=list)
    _bytes_left: int = RECORDS_BYTES_MAX

    def commit(
        self, topic: str, partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
    ) -> ErrorCode:
        """Any offset may be committed, as in Kafka: clients choose -1 and -2 to mean latest and earliest.

        An offset of a partition that was folded and is gone is accepted and dropped: nobody can use it.
        """
        metadata = partition.committed_metadata or ""
        index = partition.partition_index
        is_gone = self.context.has_lost_partition(topic, index)
        if not is_gone and not self.context.has_partition(topic, index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.error != ErrorCode.NONE:
            return self.error
        if is_gone:
            # Members commit once more for their old partitions before they join again. Java's classic
            # consumer would retry a refused commit for minutes, and not join meanwhile.
            return ErrorCode.NONE
        if len(metadata.encode()) > self.context.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        value = OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=self.now_ms,
            expire_timestamp=self.expire_timestamp,
            topic_id=self.context.topics[topic].topic_id,
        )
        record = commit_record(self.group_id, topic, index, value)
        self._bytes_left -= len(record.key) + len(record.value or b"")
        if self.is_too_large:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        self.records.append(record)
        return ErrorCode.NONE

    @property
    def is_too_large(self) -> bool:
        """True if the records do not fit into a batch: then none of them is written, as in Kafka."""
        return self._bytes_left < 0

    def refuse_if_too_large(
        self, partitions: Iterable[OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition]
    ) -> None:
        """Set the answer for each partition, after all have been checked."""
        if self.is_too_large:
            self.records.clear()
            for partition in partitions:
                if partition.error_code == ErrorCode.NONE:
                    partition.error_code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


def partitions_of(
    context: Context, request: OffsetCommitRequest | TxnOffsetCommitRequest, info: RequestInfo
) -> frozenset[tuple[bytes, int]]:
    """The partitions of a commit, by topic id; topics that do not exist are left out."""
    by_id = isinstance(request, OffsetCommitRequest) and info.api_version >= TOPIC_IDS_FROM
    found: set[tuple[bytes, int]] = set()
    for topic in request.topics:
        if by_id and isinstance(topic, OffsetCommitRequestTopic):
            topic_id = topic.topic_id
        else:
            topic_id = context.topics[topic.name].topic_id if topic.name in context.topics else ZERO_UUID
        found.update((topic_id, partition.partition_index) for partition in topic.partitions)
    return frozenset(found)


def commit(
    context: Context, request: OffsetCommitRequest, info: RequestInfo, error: ErrorCode, now: Now
) -> tuple[list[StateRecord], OffsetCommitResponse]:
    committer = _Committer(
        context, request.group_id, error, now.wall_ms, _expiry(request.retention_time_ms, now)
    )
    by_id = info.api_version >= TOPIC_IDS_FROM
    topics = []
    for topic in request.topics:
        name = context.names.get(topic.topic_id) if by_id else topic.name
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_ID if name is None else committer.commit(name, partition),
            )
            for partition in topic.partitions
        ]
        topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    committer.refuse_if_too_large(partition for topic in topics for partition in topic.partitions)
    return committer.records, OffsetCommitResponse(topics=topics)


def _expiry(retention_ms: int, now: Now) -> int:
    """When an offset expires, if its client gave a retention time; otherwise -1."""
    return -1 if retention_ms < 0 else min(now.wall_ms + retention_ms, TIMESTAMP_MAX)


def commit_in_transaction(
    context: Context, request: TxnOffsetCommitRequest, error: ErrorCode, now: Now
) -> tuple[list[StateRecord], TxnOffsetCommitResponse]:
    committer = _Committer(context, request.group_id, error, now.wall_ms)
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=committer.commit(topic.name, partition),
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    committer.refuse_if_too_large(partition for topic in topics for partition in topic.partitions)
    return committer.records, TxnOffsetCommitResponse(topics=topics)


def delete(
    context: Context, offsets: Offsets, group: Group, request: OffsetDeleteRequest
) -> tuple[list[StateRecord], OffsetDeleteResponse]:
    records: list[StateRecord] = []
    stored = {(topic, partition) for topic, partition, _ in offsets.stored(group.group_id)}
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            where = (topic.name, partition.partition_index)
            error = _delete_error(context, group, *where)
            if error == ErrorCode.NONE and where in stored:
                records.append(tombstone(group.group_id, *where))
                stored.discard(where)
            partitions.append(OffsetDeleteResponsePartition(partition_index=where[1], error_code=error))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return records, OffsetDeleteResponse(topics=topics)


def _delete_error(context: Context, group: Group, topic: str, partition: int) -> ErrorCode:
    if not context.has_partition(topic, partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(topic) else ErrorCode.NONE
