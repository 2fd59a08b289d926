"""Members of share groups over plain sockets: what is measured is the broker, not a client library.

A member acknowledges with its next fetch, as Java's client does: one request is one cycle. Its partitions are
given to it. A broker asks for no membership when a member fetches, so none joins, and no heartbeat disturbs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from uuid import uuid4

from bench.client import Client, expect_success, expect_success_soon
from bench.frames import frame_bytes
from bench.groups import find_coordinator
from bench.load import Stream
from bench.server import Address, BenchError
from forebay.errors import ErrorCode
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponsePartition,
)
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from forebay.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)

ACCEPT = 1
FINAL_EPOCH = -1
FETCH_BYTES_MAX = 1 << 20
CYCLE_WAIT_MS = 500
Ranges = dict[int, list[tuple[int, int]]]
"""First and last offsets by partition."""
_names = (f"bench-share-{number}" for number in itertools.count())


def topic_id_of(client: Client, topic: str) -> bytes:
    answer = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    found: bytes = answer.topics[0].topic_id
    return found


def new_share_group(client: Client, topic: str, partitions: int) -> str:
    """A group that begins with the first record of each partition."""
    group = new_group_name()
    find_coordinator(client, group)
    begin_with_first(client, group, topic, partitions)
    return group


def new_group_name() -> str:
    return next(_names)


def begin_with_first(client: Client, group: str, topic: str, partitions: int) -> None:
    """Have a share group begin with the first record of each partition. The client is at its coordinator."""
    starts = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0)
        for index in range(partitions)
    ]
    wanted = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=starts)]
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=wanted)

    def error_code() -> int:
        answer = client.ask(request)
        partitions = (each.error_code for topic in answer.responses for each in topic.partitions)
        return next(filter(None, (answer.error_code, *partitions)), ErrorCode.NONE)

    expect_success_soon("making a share group", error_code)


def finished_records(client: Client, group: str) -> int:
    """How many records lie before the start offsets of a group that began at 0."""
    return sum(max(each.start_offset, 0) for each in _progress(client, group))


def unfinished_records(client: Client, group: str) -> int:
    """As the broker counts them. Kafka stores a start offset only with the next acknowledgements."""
    return sum(each.lag for each in _progress(client, group))


def _progress(client: Client, group: str) -> list[DescribeShareGroupOffsetsResponsePartition]:
    asked = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
    (found,) = client.ask(DescribeShareGroupOffsetsRequest(groups=asked)).groups
    expect_success("describing a share group", found.error_code)
    return [each for topic in found.topics for each in topic.partitions]


class ShareMember:
    """One session. `held` is what it has acquired and not acknowledged."""

    def __init__(self, client: Client, group: str, topic_id: bytes, partitions: Sequence[int]) -> None:
        self.client = client
        self.held: Ranges = {}
        self.accepted = 0
        self._group = group
        self._topic_id = topic_id
        self._partitions = partitions
        self._member_id = str(uuid4())
        self._epoch = 0

    def post_cycle(self, *, records: int, wait_ms: int) -> None:
        """Accept what is held, and ask for more."""
        named = self._partitions if self._epoch == 0 else list(self.held)
        self._post(named, self.held, self._epoch, records=records, wait_ms=wait_ms)
        self._epoch += 1

    def read_cycle(self) -> int:
        """The number of records that came; what was held before is accepted."""
        answer: ShareFetchResponse = self.client.read()
        expect_success("a share fetch", answer.error_code)
        self.accepted += count(self.held)
        self.held = {}
        for topic in answer.responses:
            for partition in topic.partitions:
                expect_success("acquiring", partition.error_code)
                expect_success("acknowledging", partition.acknowledge_error_code)
                if partition.acquired_records:
                    self.held[partition.partition_index] = [
                        (each.first_offset, each.last_offset) for each in partition.acquired_records
                    ]
        return count(self.held)

    def cycle(self, *, records: int, wait_ms: int = 0) -> int:
        self.post_cycle(records=records, wait_ms=wait_ms)
        return self.read_cycle()

    def accept(self, ranges: Ranges) -> None:
        """Accept a part of what is held, and keep the rest."""
        self._post(list(ranges), ranges, self._epoch, records=0, wait_ms=0)
        self._epoch += 1
        self._read_accepted(ranges)

    def leave(self) -> None:
        """Accept what is held, and end the session."""
        self._post(list(self.held), self.held, FINAL_EPOCH, records=0, wait_ms=0)
        self._read_accepted(self.held)
        self.held = {}

    def _read_accepted(self, ranges: Ranges) -> None:
        answer: ShareFetchResponse = self.client.read()
        expect_success("a share fetch", answer.error_code)
        for topic in answer.responses:
            for partition in topic.partitions:
                expect_success("acknowledging", partition.acknowledge_error_code)
        self.accepted += count(ranges)

    def _post(
        self, named: Sequence[int], accepted: Ranges, epoch: int, *, records: int, wait_ms: int
    ) -> None:
        partitions = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
                    for first, last in accepted.get(index, ())
                ],
            )
            for index in named
        ]
        self.client.post(
            ShareFetchRequest(
                group_id=self._group,
                member_id=self._member_id,
                share_session_epoch=epoch,
                max_wait_ms=wait_ms,
                min_bytes=1 if records else 0,
                max_bytes=FETCH_BYTES_MAX if records else 0,
                max_records=records,
                batch_size=records,
                topics=[FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
            )
        )


def cycle_stream(
    group: str, topic_id: bytes, partition: int, *, batch: bytes, records: int, cycles: int, seconds: float
) -> Stream:
    """A member whose cycles were built before: it knows the offsets that it will be given, as it is alone in
    its group, and the partition holds batches of so many records from its first offset on."""
    member_id = str(uuid4())

    def frame(number: int) -> bytes:
        first = (number - 1) * records
        accepted = [
            AcknowledgementBatch(
                first_offset=first, last_offset=first + records - 1, acknowledge_types=[ACCEPT]
            )
        ]
        wanted = FetchPartition(partition_index=partition, acknowledgement_batches=accepted if number else [])
        request = ShareFetchRequest(
            group_id=group,
            member_id=member_id,
            share_session_epoch=number,
            max_wait_ms=CYCLE_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            max_records=records,
            batch_size=records,
            topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
        )
        return frame_bytes(request, ShareFetchRequest.MAX_VERSION)

    return Stream(
        blobs=[frame(number) for number in range(cycles)],
        payload_bytes_per_blob=len(batch),
        window=1,
        seconds=seconds,
        blobs_max=cycles,
    )


def count(ranges: Ranges) -> int:
    return sum(last - first + 1 for pairs in ranges.values() for first, last in pairs)


def members_of(
    address: Address, group: str, topic_id: bytes, *, members: int, partitions: int
) -> list[ShareMember]:
    """Each on a connection of its own. A single member has all partitions; of several, each has one."""
    if 1 < members < partitions:
        raise BenchError("each member has one partition: there must be a member for every partition")
    return [
        ShareMember(
            Client(address),
            group,
            topic_id,
            range(partitions) if members == 1 else [number % partitions],
        )
        for number in range(members)
    ]
