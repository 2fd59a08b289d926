"""Fetches of our own from the leaders of partitions: no group, nothing committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forebay.console.watch.snapshot import Snapshot
from forebay.errors import ErrorCode, ProtocolError, known_code
from forebay.operations.client import CommandError
from forebay.operations.wire import BrokerConnections, error_text
from forebay.wire.aborted_batches import AbortedBatches
from forebay.wire.batch import HEADER_SIZE, checked_batches, read_header
from forebay.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_BY_NAME_VERSION = 12
"""The last version of Fetch that names topics."""
FETCH_BYTES = 1 << 20
EARLIEST, LATEST = -2, -1


class Moved(CommandError):
    """The leader is another by now: look again."""


class Fetched(NamedTuple):
    """Bytes of one partition. They hold until the next request on the same connections."""

    partition: int
    data: memoryview
    start: int
    end: int
    """As far as the reader may see."""
    aborted: Sequence[AbortedTransaction]


class TopicReader:
    """Fetches from one topic, with the leaders of one picture of the cluster."""

    def __init__(
        self, connections: BrokerConnections, picture: Snapshot, topic: str, *, committed: bool = True
    ) -> None:
        self._connections = connections
        self.topic = topic
        self._committed = committed
        addresses = {broker.id: broker.address for broker in picture.brokers}
        self._leaders = {part.index: addresses.get(part.leader) for part in picture.topics[topic].partitions}

    @property
    def partitions(self) -> list[int]:
        return sorted(self._leaders)

    def by_leader(self, partitions: Sequence[int]) -> dict[str, list[int]]:
        """The partitions by the address of their leader; those without one are left out."""
        found: dict[str, list[int]] = {}
        for partition in partitions:
            address = self._leaders.get(partition)
            if address is not None:
                found.setdefault(address, []).append(partition)
        return found

    def ends(self, partitions: Sequence[int], which: int) -> dict[int, int]:
        """Offsets by partition: of EARLIEST, LATEST or a time in milliseconds; LATEST if nothing is later."""
        found: dict[int, int] = {}
        for address, own in self.by_leader(partitions).items():
            found |= self._ends(address, own, which)
            missing = [partition for partition in own if found[partition] < 0]
            if missing:
                found |= self._ends(address, missing, LATEST)
        return found

    def _ends(self, address: str, partitions: Sequence[int], which: int) -> dict[int, int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self._committed),
            topics=[
                ListOffsetsTopic(
                    name=self.topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=each, timestamp=which) for each in partitions
                    ],
                )
            ],
        )
        answer = self._connections.at(address).ask(request, ListOffsetsResponse)
        found = {}
        for part in answer.topics[0].partitions:
            self._check(part.partition_index, part.error_code)
            found[part.partition_index] = part.offset
        return found

    def fetch(
        self,
        address: str,
        offsets: Mapping[int, int],
        *,
        wait_ms: int = 0,
        bytes_max: int = FETCH_BYTES,
    ) -> list[Fetched]:
        """Fetch from a leader, from these offsets on. Raises CommandError or Moved."""
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=int(self._committed),
            topics=[
                FetchTopic(
                    topic=self.topic,
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
                        for index, offset in offsets.items()
                    ],
                )
            ],
        )
        answer = self._connections.at(address).ask(request, FetchResponse, _BY_NAME_VERSION)
        if not answer.responses:
            return []
        found = []
        for part in answer.responses[0].partitions:
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                start = part.log_start_offset
                found.append(Fetched(part.partition_index, memoryview(b""), start, part.high_watermark, ()))
                continue
            self._check(part.partition_index, part.error_code)
            end = part.last_stable_offset if self._committed else part.high_watermark
            data = memoryview(part.records or b"")  # type: ignore[arg-type]
            aborted = part.aborted_transactions or () if self._committed else ()
            found.append(Fetched(part.partition_index, data, part.log_start_offset, end, aborted))
        return found

    def fetch_one(self, partition: int, offset: int) -> Fetched:
        """Raises Moved if the partition has no leader now."""
        address = self._leaders.get(partition)
        if address is None:
            raise CommandError(f"partition {partition} of {self.topic} has no leader now: try again later")
        found = self.fetch(address, {partition: offset})
        if not found:
            raise Moved(f"partition {partition} of {self.topic} has moved: try again")
        return found[0]

    def _check(self, partition: int, error_code: int) -> None:
        if not error_code:
            return
        kind = Moved if known_code(error_code).retriable else CommandError
        raise kind(f"{self.topic}-{partition}: {error_text(error_code, None)}")


class Batches(NamedTuple):
    """The batches in fetched bytes."""

    visible: list[memoryview]
    """Whole batches with messages, without markers and aborted ones."""
    next_offset: int
    """The offset to go on from: the one that was asked for if there was no whole batch."""


def batches_of(fetched: Fetched, offset: int) -> Batches:
    """A batch that is damaged is passed over, as far as its header can be believed."""
    aborted = AbortedBatches(fetched.aborted)
    visible: list[memoryview] = []
    after = offset
    try:
        for batch, header in checked_batches(fetched.data):
            if not aborted.skips(header.attributes, header.producer_id, header.last_offset):
                visible.append(batch)
            after = max(after, header.next_offset)
    except ProtocolError:
        if after == offset and len(fetched.data) >= HEADER_SIZE:
            after = max(offset + 1, read_header(fetched.data).next_offset)
    return Batches(visible, after)
