"""Materialized views are filled by the leaders of their partitions.

A leader fetches what the query shows of the same partition of the source, from the leader of the source, as a
consumer of committed messages does, and appends it to its log at the same offsets (`core/views/copying.py`).
So it goes on where its log ends, and a new leader does the same with its own: what one leader has appended
and the next does not have is fetched again.

The leader of the source syncs its disk before it answers where no other replica has the messages
(`fetch/view_fetch.py`): a copy does not outlive what it was made of. If the source has lost messages all the
same, as an unclean election makes it, other messages have their offsets now. Then the partition is not filled
any further: there is no place for these.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from forebay.broker.background import Background
from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.partition.partition import Partition
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.views.fill_position import Fill, FillStop
from forebay.broker.worker_threads import LazyThreads
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.views.copying import UNKNOWN_EPOCH, Aborted, copy_batches
from forebay.errors import ErrorCode, KafkaError, ProtocolError, StorageError, known_code
from forebay.lazy import dataclass
from forebay.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

log = logging.getLogger(__name__)

_LOOKS_EVERY_S = 1.0
_WAIT_MS = 500
_ANSWER_BYTES = 4 << 20
_PARTITION_BYTES = 1 << 20
_TIMEOUT_S = 30.0
_REST_S = 0.2
_TROUBLE_REST_S = 2.0
_READ_COMMITTED = 1
_EARLIEST_TIMESTAMP = -2

_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Brokers get a new image at different times."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FillHost:
    """The parts of the broker that filling needs."""

    metadata: Metadata
    peers: Peers
    write_cycle: WriteCycle
    lease: HeldLease
    threads: LazyThreads
    metrics: Metrics
    background: Background
    loop: asyncio.AbstractEventLoop


class FillState(NamedTuple):
    """How far a partition is filled, and why not further; empty words if it goes on."""

    topic: str
    partition: int
    position: int
    reason: str
    problem: str


class ViewFilling:
    def __init__(self, host: FillHost, partitions: Callable[[], list[Partition]]) -> None:
        """`partitions`: all that this broker has."""
        self._host = host
        self._partitions = partitions
        self._fills: dict[Partition, Fill] = {}
        self._sources: set[int] = set()
        """The brokers that are fetched from at the moment."""
        self._woken = asyncio.Event()
        self._closing: asyncio.Future[None] = host.loop.create_future()
        self._turn = 0

    async def run(self) -> None:
        """Start what is to be done, for as long as the broker serves."""
        while not self._closing.done():
            self._woken.clear()
            self._look()
            timer = self._host.loop.call_later(_LOOKS_EVERY_S, self._woken.set)
            await self._woken.wait()
            timer.cancel()

    def role_taken(self, partition: Partition, _state: PartitionState) -> None:
        if partition.is_filled:
            self._woken.set()

    def close(self) -> None:
        if not self._closing.done():
            self._closing.set_result(None)
        self._woken.set()

    def end_threads(self) -> None:
        """Blocks until the work under way has ended."""
        self._host.threads.close()

    def _look(self) -> None:
        """Find out what is led here, and have it fetched from where its source is led."""
        image = self._host.metadata.image
        self._fills = {each: fill for each, fill in self._fills.items() if not fill.is_over}
        if not image.fills:
            return
        for partition in self._partitions():
            if partition.is_filled and partition.is_leader and partition not in self._fills:
                view = image.fills.get(partition.topic)
                if view is not None:
                    self._fills[partition] = Fill(partition, view)
        for node in {_source(image, fill)[0] for fill in self._fills.values()} - {NO_LEADER}:
            if node not in self._sources:
                self._sources.add(node)
                self._host.background.spawn(self._fill_from(node), f"filling views from broker {node}")

    def states(self) -> Iterator[FillState]:
        """Of all partitions that are filled here."""
        image = self._host.metadata.image
        for fill in self._fills.values():
            if not fill.is_over:
                partition, (stop, problem) = fill.partition, _why_not(image, fill)
                reason = "" if stop is None else stop.value
                yield FillState(partition.topic, partition.index, fill.position, reason, problem)

    # -- fetching --------------------------------------------------------------------------------------

    async def _fill_from(self, node: int) -> None:
        """Fetch from one broker for as long as it leads the source of anything."""
        try:
            while not self._closing.done() and (fills := self._led_by(node)):
                if not await self._fetch(node, fills):
                    await self._rest(_REST_S)
        finally:
            self._sources.discard(node)

    def _led_by(self, node: int) -> list[Fill]:
        image = self._host.metadata.image
        return [
            fill
            for fill in self._fills.values()
            if not fill.is_over and fill.view.name in image.fills and _source(image, fill)[0] == node
        ]

    async def _rest(self, seconds: float) -> None:
        await asyncio.wait((self._closing,), timeout=seconds)

    async def _fetch(self, node: int, fills: list[Fill]) -> bool:
        """One fetch for all that may be filled now; False if there is nothing to be done at the moment."""
        asked: dict[tuple[bytes, int], tuple[Fill, FetchPartition]] = {}
        self._turn += 1
        first = self._turn % len(fills)
        for fill in (*fills[first:], *fills[:first]):  # what comes first gets most of a full answer
            if await self._begin(fill):
                asked[fill.view.view_id, fill.partition.index] = fill, self._wanted(fill)
        if not asked:
            return False
        topics: dict[bytes, list[FetchPartition]] = {}
        for (view_id, _), (_, wanted) in asked.items():
            topics.setdefault(view_id, []).append(wanted)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_ANSWER_BYTES,
            isolation_level=_READ_COMMITTED,
            topics=[FetchTopic(topic_id=view_id, partitions=each) for view_id, each in topics.items()],
        )
        began_s = self._host.loop.time()
        try:
            response = await self._host.peers.ask(node, request, timeout_s=_TIMEOUT_S)
        except KafkaError as error:
            log.debug("a source cannot be reached", extra={"broker": node, "reason": error.message})
            return False
        assert isinstance(response, FetchResponse)
        moved = False
        for topic in response.responses:
            for data in topic.partitions:
                fill, wanted = asked[topic.topic_id, data.partition_index]
                moved = await self._take_safely(node, fill, wanted.fetch_offset, data) or moved
        return moved or self._host.loop.time() - began_s >= _WAIT_MS / 2000

    async def _begin(self, fill: Fill) -> bool:
        """Prepare to fill a partition; False if it cannot be filled now."""
        now_s = self._host.loop.time()
        if now_s < fill.rests_until_s or not fill.may_write or not self._host.lease.valid():
            return False
        try:
            await fill.begin(self._host.threads)
            if fill.is_gap_due(now_s):
                self._store(fill, fill.append_gap)
        except StorageError as error:
            self._trouble(fill, FillStop.NOT_WRITTEN, error.message)
            return False
        return fill.may_write

    def _wanted(self, fill: Fill) -> FetchPartition:
        _, leader_epoch = _source(self._host.metadata.image, fill)
        return FetchPartition(
            partition=fill.partition.index,
            current_leader_epoch=leader_epoch,
            fetch_offset=fill.position,
            last_fetched_epoch=fill.epoch,
            partition_max_bytes=_PARTITION_BYTES,
        )

    # -- storing ---------------------------------------------------------------------------------------

    async def _take_safely(self, node: int, fill: Fill, position: int, data: PartitionData) -> bool:
        """Store the answer for one partition; whether it has come further."""
        try:
            return await self._take(node, fill, position, data)
        except KafkaError as error:
            if error.code in _PASSING:
                fill.rests_until_s = self._host.loop.time() + _REST_S
            else:
                stop = FillStop.NOT_WRITTEN if isinstance(error, StorageError) else FillStop.SOURCE_NOT_SERVED
                self._trouble(fill, stop, error.message)
        except ProtocolError as error:
            self._trouble(fill, FillStop.BAD_ANSWER, str(error))
        return False

    async def _take(self, node: int, fill: Fill, position: int, data: PartitionData) -> bool:
        diverging = data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or diverging:
            return await self._find_start(node, fill, position)
        if data.error_code:
            code = known_code(data.error_code)
            raise KafkaError(code, f"the source is not served: {code.name}")
        fill.stop, fill.problem = None, ""
        if not data.records:
            return False
        assert isinstance(data.records, memoryview)
        aborted = [Aborted(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        limit = fill.partition.log.config.decompress_max_bytes
        copied = await self._host.threads.run(partial(copy_batches, data.records, position, aborted, limit))
        if not self._may_store(fill, position):
            return False  # it is asked for again, here or by the next leader
        now_s = self._host.loop.time()
        self._store(fill, lambda: fill.append(copied, now_s))
        self._host.metrics.view_records_copied += copied.record_count
        return copied.next_offset > position

    def _may_store(self, fill: Fill, position: int) -> bool:
        """True if what was fetched from a position still comes next, and is to be stored here."""
        is_next = fill.may_write and fill.position == position
        return is_next and self._host.lease.valid() and not self._closing.done()

    def _store(self, fill: Fill, append: Callable[[], int]) -> None:
        """Have what is appended written. Raises StorageError, which the write then hears of too."""
        size = 0
        try:
            size = append()
        finally:
            self._host.write_cycle.queued(fill.partition, size)
            self._host.write_cycle.finish_soon()

    async def _find_start(self, node: int, fill: Fill, position: int) -> bool:
        """The source does not have what follows the position: because it was deleted there, or lost."""
        image = self._host.metadata.image
        name, (_, leader_epoch) = image.topic_names.get(fill.view.source_id, ""), _source(image, fill)
        wanted = ListOffsetsPartition(
            partition_index=fill.partition.index,
            current_leader_epoch=leader_epoch,
            timestamp=_EARLIEST_TIMESTAMP,
        )
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
        response = await self._host.peers.ask(node, request)
        assert isinstance(response, ListOffsetsResponse)
        ((found,),) = (topic.partitions for topic in response.topics)
        if found.error_code:
            raise KafkaError(known_code(found.error_code), f"{name} cannot be looked at now")
        if found.offset < position:
            self._trouble(
                fill,
                FillStop.SOURCE_LOST,
                f"{name} has lost messages that were copied; delete the view, and create it again",
            )
            return False
        if not self._may_store(fill, position):
            return False
        if position and found.offset > position:
            self._host.metrics.view_offsets_missed += found.offset - position
            log.warning(
                "messages were deleted before a materialized view had them",
                extra={"partition": str(fill.partition), "from": position, "to": found.offset},
            )
        fill.epoch = UNKNOWN_EPOCH
        fill.passed(found.offset, self._host.loop.time())
        return True

    def _trouble(self, fill: Fill, stop: FillStop, problem: str) -> None:
        fill.rests_until_s = self._host.loop.time() + _TROUBLE_REST_S
        fill.stop = stop
        if problem != fill.problem:
            fill.problem = problem
            extra = {"partition": str(fill.partition), "reason": problem}
            log.warning("a materialized view is not filled", extra=extra)


def _why_not(image: ClusterImage, fill: Fill) -> tuple[FillStop | None, str]:
    partition = fill.partition
    if fill.stop is None and _source(image, fill)[0] == NO_LEADER:
        return FillStop.SOURCE_NOT_SERVED, "the partition of the source has no leader"
    if fill.stop is None and not partition.enough_replicas:
        return FillStop.NOT_WRITTEN, "too few replicas of the view's partition are in sync"
    return fill.stop, fill.problem


def _source(image: ClusterImage, fill: Fill) -> tuple[int, int]:
    """The leader of the partition that it is filled from, and its epoch."""
    topic = image.topic_by_id(fill.view.source_id)
    if topic is None or fill.partition.index >= len(topic.partitions):
        return NO_LEADER, -1
    state = topic.partitions[fill.partition.index]
    return state.leader, state.leader_epoch
