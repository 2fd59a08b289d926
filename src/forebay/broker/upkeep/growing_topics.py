"""Partitions that were folded and take messages again: their leaders gather the sequences of producers.

The leader asks the leaders of the partitions that took those messages until now, writes what they say into
its own log (`core/partition/folds/gathered.py`), and notes in the topic's record that it is done. That opens
the partition. If the leader fails on the way, the next one begins anew.

A partition is asked only for what does not change any more. It has heard of the growth, so it takes no more
of those messages; all that it took is committed, and its replicas hold no more than its leader. So whichever
leader it has says the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Mapping
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.broker.produce.commit_wait import committed
from forebay.broker.upkeep.folded_sequences import append_seeds, received, to_send
from forebay.coordination.store import StoreError
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.topics.more_partitions import gathered_by, growth_of, is_same_growth, record_growth
from forebay.core.partition.folds.aliases import alias_of, named_by
from forebay.core.partition.folds.closed_partition import takes
from forebay.core.partition.folds.gathered import (
    Gathered,
    awaits_marker,
    gathered_from,
    seeds,
)
from forebay.errors import ErrorCode, KafkaError, known_code
from forebay.wire.messages.folded_producers import (
    FoldedProducersRequest,
    FoldedProducersResponse,
    WantedNumbers,
)

if TYPE_CHECKING:
    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.produce.write_cycle import WriteCycle
    from forebay.coordination.metadata import Metadata
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.images.topic_image import TopicImage

log = logging.getLogger(__name__)

_PRODUCERS_PER_ANSWER = 2_000
_SEEDS_PER_STEP = 500
"""After this many producers the loop may serve requests."""
_TIMEOUT_S = 2.0
"""For an answer, or for replicas: other partitions of the topic wait in vain meanwhile."""
_PAUSE_S = 0.02
_PAUSE_S_MAX = 0.25


def tell(partitions: PartitionTable, request: FoldedProducersRequest) -> FoldedProducersResponse:
    """The state that a partition led here has of producers whose messages go elsewhere now; raises
    KafkaError."""
    partition = partitions.by_id(request.topic_id, request.index)
    revision = partitions.topic_of(partition).revision
    if revision < request.revision:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{partition} has heard of revision {revision} of the metadata only, not of {request.revision}",
        )
    wanted = {(each.named, each.generation) for each in request.wanted}
    producers = partition.producers
    found = nsmallest(
        _PRODUCERS_PER_ANSWER + 1,
        (
            state.producer_id
            for state in producers
            if state.producer_id > request.after and named_by(state.producer_id, -1)[1:] in wanted
        ),
    )
    states = [producers.find(producer_id) for producer_id in found[:_PRODUCERS_PER_ANSWER]]
    told = [gathered_from(state, state.producer_id) for state in states if state is not None]
    is_committed = all(state is None or state.end_offset <= partition.high_watermark for state in states)
    if not is_committed or not partition.is_followed:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"not all of {partition} is committed yet")
    return FoldedProducersResponse(
        is_last=len(found) <= _PRODUCERS_PER_ANSWER, producers=[to_send(each) for each in told]
    )


class _Work(NamedTuple):
    """Partitions of a topic that this broker leads."""

    gathering: list[int]
    draining: list[int]


class GrowingTopics:
    def __init__(
        self,
        partitions: PartitionTable,
        metadata: Metadata,
        peers: Peers,
        write_cycle: WriteCycle,
        loop: asyncio.AbstractEventLoop,
        *,
        now_ms: Callable[[], int],
        node_id: int,
        has_under_way: Callable[[bytes, Container[int]], bool],
    ) -> None:
        """`has_under_way`: as in `BatchTakers`."""
        self._partitions = partitions
        self._metadata = metadata
        self._peers = peers
        self._write_cycle = write_cycle
        self._loop = loop
        self._now_ms = now_ms
        self._node_id = node_id
        self._has_under_way = has_under_way
        self._news = asyncio.Event()

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Called when the partitions have taken their roles."""
        if after.topics is not before.topics:
            self._news.set()

    async def run(self) -> None:
        """Do what this broker has to do for topics that get more partitions, for as long as it serves.

        Each topic by itself: a partition that waits for its replicas holds up no other topic.
        """
        at_work: set[bytes] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._news.clear()
                for topic in self._metadata.image.topics.values():
                    if topic.topic_id not in at_work and self._work_of(topic) is not None:
                        at_work.add(topic.topic_id)
                        tasks.create_task(self._grow(topic.topic_id, at_work))
                await self._news.wait()

    async def _grow(self, topic_id: bytes, at_work: set[bytes]) -> None:
        """Go on until nothing is left to do for the topic here. When that changes, there are news."""
        pause_s = _PAUSE_S
        while True:
            topic = self._metadata.image.topic_by_id(topic_id)
            work = self._work_of(topic)
            if topic is None or work is None:
                at_work.discard(topic_id)
                return
            await self._do(topic, work)
            await asyncio.sleep(pause_s)
            has_changed = self._metadata.image.topic_by_id(topic_id) is not topic
            pause_s = _PAUSE_S if has_changed else min(2 * pause_s, _PAUSE_S_MAX)

    def _work_of(self, topic: TopicImage | None) -> _Work | None:
        """The partitions led here that have to gather or to drain."""
        growth = growth_of(topic)
        if topic is None or growth is None:
            return None
        gathering, draining = (
            [index for index in indexes if topic.partitions[index].leader == self._node_id]
            for indexes in (growth.gathering, growth.draining)
        )
        return _Work(gathering, draining) if gathering or draining else None

    async def _do(self, topic: TopicImage, work: _Work) -> None:
        gathering, draining = work
        gathered = await asyncio.gather(*(_tried(self._gather, topic, index) for index in gathering))
        drained = await asyncio.gather(*(_tried(self._drain, topic, index) for index in draining))
        done = {index for index, is_done in zip(gathering, gathered, strict=True) if is_done}
        empty = {index for index, is_done in zip(draining, drained, strict=True) if is_done}
        if done or empty:
            await self._note(topic, done, empty)

    async def _note(self, topic: TopicImage, gathered: set[int], drained: set[int]) -> None:
        plan = partial(record_growth, seen=topic, gathered=gathered, drained=drained)
        try:
            await self._metadata.change(plan)
        except StoreError as error:
            log.info("partitions are not open yet", extra={"topic": topic.name, "reason": error.message})
            return
        if gathered:
            log.info(
                "partitions that were folded take messages again",
                extra={"topic": topic.name, "partitions": sorted(gathered)},
            )

    # -- gathering -------------------------------------------------------------------------------------

    async def _gather(self, topic: TopicImage, index: int) -> bool:
        """Bring a partition's knowledge of producers up to date; whether it could be done."""
        partition = self._partitions.get(topic.name, index)
        leader_epoch = partition.leader_epoch
        found: list[Gathered] = []
        sources = gathered_by(topic, index)
        self._check_answered(topic, sources)
        for source, wanted in sources.items():
            found += await self._ask_all(topic, source, wanted)
        for first in range(0, len(found), _SEEDS_PER_STEP):
            if partition.leader_epoch != leader_epoch or not self._is_gathering(topic, partition):
                return False
            self._seed(partition, found[first : first + _SEEDS_PER_STEP])
            await self._committed(partition)
        await self._committed(partition)
        return partition.leader_epoch == leader_epoch

    def _check_answered(
        self, topic: TopicImage, sources: Mapping[int, Mapping[tuple[int, int | None], int | None]]
    ) -> None:
        """Raise KafkaError while batches that will be taken here are under way to where they went before.

        One that is refused there comes again, and those behind it must not be here by then.
        """
        named = {partition for wanted in sources.values() for partition, _ in wanted}
        if self._has_under_way(topic.topic_id, named):
            text = f"batches for {topic.name} that were passed on are not answered yet"
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    async def _committed(self, partition: Partition) -> None:
        await committed(self._write_cycle, partition, self._loop, timeout_ms=int(_TIMEOUT_S * 1000))

    def _is_gathering(self, topic: TopicImage, partition: Partition) -> bool:
        """True if a partition still waits for what was asked for. If it is open, it knows more by now."""
        fold = partition.fold
        if fold is None or not fold.is_returning or not partition.is_leader or partition.closed:
            return False
        return is_same_growth(self._metadata.image.topic_by_id(topic.topic_id), topic)

    def _seed(self, partition: Partition, found: list[Gathered]) -> None:
        for each in found:
            own = partition.producers.find(each.producer_id)
            if awaits_marker(own, each):
                raise KafkaError(
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    f"a transaction of producer {each.producer_id} has not ended in {partition} yet",
                )
            append_seeds(self._write_cycle, partition, seeds(own, each, self._now_ms()))

    async def _ask_all(
        self, topic: TopicImage, source: int, wanted: Mapping[tuple[int, int | None], int | None]
    ) -> list[Gathered]:
        found: list[Gathered] = []
        request = FoldedProducersRequest(
            topic_id=topic.topic_id,
            index=source,
            revision=topic.revision,
            wanted=[
                WantedNumbers(named=named, generation=generation)
                for named, generation in wanted
                if generation is not None
            ],
        )
        while True:
            answer = await self._ask(topic, request)
            for producer in answer.producers:
                named = named_by(producer.producer_id, source)
                target = wanted[named.partition, named.generation]
                found.append(received(producer, alias_of(producer.producer_id, source, target)))
            if answer.is_last or not answer.producers:
                return found
            request.after = answer.producers[-1].producer_id

    async def _ask(self, topic: TopicImage, request: FoldedProducersRequest) -> FoldedProducersResponse:
        state = self._metadata.image.partition(topic.name, request.index)
        if state is None or state.leader == NO_LEADER:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{request.index} has no leader now"
            )
        if state.leader == self._node_id:
            return tell(self._partitions, request)
        answer = await self._peers.ask(state.leader, request, version=0, timeout_s=_TIMEOUT_S)
        assert isinstance(answer, FoldedProducersResponse)
        if answer.error_code:
            raise KafkaError(known_code(answer.error_code), answer.error_message or "nothing was told")
        return answer

    # -- draining --------------------------------------------------------------------------------------

    async def _drain(self, topic: TopicImage, index: int) -> bool:
        """True if all of a partition's transactions have ended whose messages go elsewhere now."""
        partition = self._partitions.get(topic.name, index)
        leader_epoch = partition.leader_epoch
        if not all(takes(topic, index, producer_id) for producer_id in partition.producers.transactions):
            return False
        await self._committed(partition)
        return partition.leader_epoch == leader_epoch and partition.is_followed


async def _tried(
    work: Callable[[TopicImage, int], Coroutine[Any, Any, bool]], topic: TopicImage, index: int
) -> bool:
    """Do it for a partition; whether it could be done.

    It begins here, so that no coroutine is left over if the task is cancelled before it starts.
    """
    try:
        return await work(topic, index)
    except KafkaError as error:
        log.debug("a topic does not have more partitions yet", extra={"reason": error.message})
        return False
