"""OffsetFetch: for one group in the older versions, several in the newer, by topic id in the newest."""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.groups.group import Claim, Context, Group
from forebay.core.groups.offset_commit import TOPIC_IDS_FROM
from forebay.core.groups.offsets import Offset, Offsets
from forebay.core.step import RequestInfo
from forebay.errors import ErrorCode
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages import offset_fetch as wire

GROUPS_FROM = 8
NO_OFFSET = -1


class _Wanted(NamedTuple):
    name: str | None
    topic_id: bytes
    partitions: list[int]


def as_groups(request: wire.OffsetFetchRequest, info: RequestInfo) -> list[wire.OffsetFetchRequestGroup]:
    """The requested groups, in the form of the newer versions."""
    if info.api_version >= GROUPS_FROM:
        return request.groups
    if request.topics is None:
        return [wire.OffsetFetchRequestGroup(group_id=request.group_id, topics=None)]
    topics = [
        wire.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
        for topic in request.topics
    ]
    return [wire.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def as_response(groups: list[wire.OffsetFetchResponseGroup], info: RequestInfo) -> wire.OffsetFetchResponse:
    """The response in the form of the request's version."""
    if info.api_version >= GROUPS_FROM:
        return wire.OffsetFetchResponse(groups=groups)
    (group,) = groups
    topics = [
        wire.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                wire.OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return wire.OffsetFetchResponse(topics=topics, error_code=group.error_code)


class Fetcher(NamedTuple):
    context: Context
    offsets: Offsets
    info: RequestInfo
    require_stable: bool

    def fetch(
        self, group: Group | None, asked: wire.OffsetFetchRequestGroup
    ) -> wire.OffsetFetchResponseGroup:
        claim = Claim(member_id=asked.member_id or "", epoch=asked.member_epoch)
        error = ErrorCode.NONE if group is None else group.check_fetch(claim)
        if error != ErrorCode.NONE:
            return wire.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
        return wire.OffsetFetchResponseGroup(
            group_id=asked.group_id,
            topics=[
                wire.OffsetFetchResponseTopics(
                    name=wanted.name or "",
                    topic_id=wanted.topic_id,
                    partitions=[self._partition(asked.group_id, wanted.name, p) for p in wanted.partitions],
                )
                for wanted in self._wanted(asked)
            ],
        )

    def _wanted(self, asked: wire.OffsetFetchRequestGroup) -> list[_Wanted]:
        by_id = self.info.api_version >= TOPIC_IDS_FROM
        if asked.topics is None:
            everything = self._everything(asked.group_id)
            # A response with topic ids cannot name a topic that was deleted and has no id.
            return [each for each in everything if not by_id or each.topic_id != ZERO_UUID]
        return [
            _Wanted(
                self.context.names.get(topic.topic_id) if by_id else topic.name,
                topic.topic_id,
                topic.partition_indexes,
            )
            for topic in asked.topics
        ]

    def _everything(self, group_id: str) -> list[_Wanted]:
        topics = self.context.topics
        return [
            _Wanted(name, topics[name].topic_id if name in topics else ZERO_UUID, indexes)
            for name, partitions in sorted(self.offsets.of_group(group_id).items())
            if (indexes := sorted(index for index in partitions if self._counts(name, partitions[index])))
        ]

    def _counts(self, topic: str, offset: Offset) -> bool:
        """False for an offset of a deleted topic that is not swept away yet, if there is another one of its
        name."""
        return not self.context.is_of_another(topic, offset.topic_id)

    def _partition(
        self, group_id: str, topic: str | None, partition: int
    ) -> wire.OffsetFetchResponsePartitions:
        if topic is None:
            return _nothing(partition, ErrorCode.UNKNOWN_TOPIC_ID)
        if self.require_stable and self.offsets.is_pending(group_id, topic, partition):
            return _nothing(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = self.offsets.get(group_id, topic, partition)
        if found is None or not self._counts(topic, found):
            return _nothing(partition, ErrorCode.NONE)
        return wire.OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=found.offset,
            committed_leader_epoch=found.leader_epoch,
            metadata=found.metadata,
        )


def _nothing(partition: int, code: ErrorCode) -> wire.OffsetFetchResponsePartitions:
    return wire.OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=code
    )
