"""Hands what a closed partition knows of its producers to the partition that takes their messages.

A producer may have sent nothing since the partition was closed, or be about to resend a batch for which it
got no response. As long as the closed partition is there, it tells with each batch which sequence comes next.
When it is gone, the other partition would accept any batch first: the second of two, if the first was refused
a moment before because brokers learn of the change at different times. So its leader writes these sequences
into its log first, as batches without records (`core/partition/folds/gathered.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.broker.partition.append_refusals import require_known_producers
from forebay.broker.partition.closed_partition import known_producer
from forebay.broker.produce.commit_wait import committed
from forebay.broker.upkeep.folded_sequences import append_seeds, received, to_send
from forebay.core.partition.folds.aliases import alias_of
from forebay.core.partition.folds.gathered import Gathered, gathered_from, is_news, seeds
from forebay.errors import ErrorCode, KafkaError, known_code
from forebay.wire.messages.hand_over_numbers import HandOverNumbersRequest, HandOverNumbersResponse

if TYPE_CHECKING:
    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.produce.write_cycle import WriteCycle
    from forebay.coordination.metadata import Metadata
    from forebay.core.cluster.images.topic_image import TopicImage

_PRODUCERS_AT_ONCE = 500
"""In one request; their batches are appended without a pause."""
_TIMEOUT_S = 20.0


class SequenceHandover:
    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionTable,
        peers: Peers,
        write_cycle: WriteCycle,
        loop: asyncio.AbstractEventLoop,
        *,
        now_ms: Callable[[], int],
        node_id: int,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._peers = peers
        self._write_cycle = write_cycle
        self._loop = loop
        self._now_ms = now_ms
        self._node_id = node_id

    # -- handing over ----------------------------------------------------------------------------------

    async def hand_over(self, topic: TopicImage, partition: Partition) -> None:
        """Returns once the other partition has committed what it did not know. Raises KafkaError."""
        stop = topic.folded_into(partition.index)
        assert stop is not None
        require_known_producers(partition.log)
        ids = [state.producer_id for state in partition.producers]
        for first in range(0, len(ids), _PRODUCERS_AT_ONCE):
            known = _known(partition, ids[first : first + _PRODUCERS_AT_ONCE], stop.generation)
            if known:
                await self._send(topic, stop.partition, known)

    async def _send(self, topic: TopicImage, index: int, numbers: list[Gathered]) -> None:
        leader = topic.leader_of(index)
        if leader == self._node_id:
            await self._take(topic.topic_id, index, topic.revision, numbers)
            return
        request = HandOverNumbersRequest(
            topic_id=topic.topic_id,
            index=index,
            revision=topic.revision,
            producers=[to_send(each) for each in numbers],
        )
        answer = await self._peers.ask(leader, request, version=0, timeout_s=_TIMEOUT_S)
        assert isinstance(answer, HandOverNumbersResponse)
        if answer.error_code:
            raise KafkaError(known_code(answer.error_code), answer.error_message or "numbers were refused")

    # -- taking over -----------------------------------------------------------------------------------

    async def answer(self, request: HandOverNumbersRequest) -> HandOverNumbersResponse:
        numbers = [received(each, each.producer_id) for each in request.producers]
        try:
            await self._take(request.topic_id, request.index, request.revision, numbers)
        except KafkaError as error:
            return HandOverNumbersResponse(error_code=error.code, error_message=error.message)
        return HandOverNumbersResponse()

    async def _take(self, topic_id: bytes, index: int, revision: int, numbers: list[Gathered]) -> None:
        partition = self._partitions.get_with_lease(self._partitions.name_of(topic_id), index)
        if self._partitions.topic_of(partition).revision < revision:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} has not heard of revision {revision} yet"
            )
        if partition.fold is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is closed")
        if not partition.enough_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{partition} has too few replicas in sync")
        require_known_producers(partition.log)
        producers = partition.producers
        for each in numbers:
            own = producers.find(each.producer_id)
            if is_news(own, each):
                append_seeds(self._write_cycle, partition, seeds(own, each, self._now_ms()))
        await committed(self._write_cycle, partition, self._loop)


def _known(partition: Partition, producer_ids: list[int], generation: int | None) -> list[Gathered]:
    """The state of producers in a closed partition, under the aliases by which the other keeps them."""
    states = [known_producer(partition, producer_id) for producer_id in producer_ids]
    return [
        gathered_from(state, alias_of(state.producer_id, partition.index, generation))
        for state in states
        if state is not None and not state.in_transaction and (state.batches or state.next_sequence)
    ]
