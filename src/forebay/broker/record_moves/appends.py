"""Appending a mover's batch to its target, wherever that is led, as an idempotent producer would.

The target is named by its topic's id: a topic that was deleted and made again under the same name is another.
"""

from __future__ import annotations

import asyncio

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.folds.takers import BatchTakers, OtherBroker, SentBatch
from forebay.broker.partition.append_refusals import not_enough_replicas
from forebay.broker.partition.partition import Partition
from forebay.broker.produce.commit_wait import committed
from forebay.broker.produce.record_checks import Examiner, Outcome
from forebay.broker.produce.write_cycle import ACKS_ALL, WriteCycle
from forebay.coordination.metadata import Metadata
from forebay.core.partition.record_rules import UNEXAMINED, Examined, Unexamined
from forebay.errors import ErrorCode, KafkaError, known_code
from forebay.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_BY_TOPIC_ID = 13
"""The version of Produce that names topics by their ids."""
_ACK_TIMEOUT_MS = 10_000
_TIMEOUT_S = 20.0


class MoveAppends:
    def __init__(
        self,
        metadata: Metadata,
        peers: Peers,
        takers: BatchTakers,
        write_cycle: WriteCycle,
        examiner: Examiner,
        time: BrokerTime,
        loop: asyncio.AbstractEventLoop,
        *,
        node_id: int,
    ) -> None:
        self._metadata = metadata
        self._peers = peers
        self._takers = takers
        self._write_cycle = write_cycle
        self._examiner = examiner
        self._time = time
        self._loop = loop
        self._node_id = node_id

    async def append(self, topic_id: bytes, index: int, batch: bytearray) -> None:
        """Returns once the batch is committed, be it by an earlier attempt.

        Raises KafkaError. After most errors nobody knows whether it will be committed.
        """
        topic = self._metadata.image.topic_by_id(topic_id)
        if topic is None or not topic.path(index):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        if index < len(topic.partitions):
            leader = topic.leader_of(index)
            if leader != self._node_id:
                await self._append_there(leader, topic_id, index, batch)
                return
        sent = SentBatch(index, memoryview(batch))
        taker = self._takers.who_takes(topic.name, sent)
        if isinstance(taker, OtherBroker):
            answer = await self._takers.ask(sent, taker)
            if answer.error_code and sent.stored_before(answer.error_code) is None:
                raise KafkaError(known_code(answer.error_code), answer.error_message or "it was refused")
        else:
            await self._append_here(taker, sent)

    async def _append_there(self, leader: int, topic_id: bytes, index: int, batch: bytearray) -> None:
        data = PartitionProduceData(index=index, records=memoryview(batch))
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=_ACK_TIMEOUT_MS,
            topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])],
        )
        response = await self._peers.ask(leader, request, version=_BY_TOPIC_ID, timeout_s=_TIMEOUT_S)
        assert isinstance(response, ProduceResponse)
        ((result,),) = (topic.partition_responses for topic in response.responses)
        if result.error_code:
            raise KafkaError(known_code(result.error_code), result.error_message or "the batch was refused")

    async def _append_here(self, partition: Partition, batch: SentBatch) -> None:
        try:
            examined = None
            while self._queue(partition, batch, examined) is UNEXAMINED:
                examined = await self._examine(batch, partition)
        except KafkaError as error:
            if batch.stored_before(error.code) is None:
                raise
        # A duplicate's original may not be committed yet either.
        await committed(self._write_cycle, partition, self._loop)

    def _queue(self, partition: Partition, batch: SentBatch, examined: Examined | None) -> Unexamined | None:
        records = batch.records
        assert records is not None
        if not partition.enough_replicas:
            raise not_enough_replicas(str(partition), partition.producers, records)
        end_offset = partition.log.end_offset
        now_ms = self._time.now_ms()
        if self._takers.append(partition, batch, now_ms, examined=examined) is UNEXAMINED:
            return UNEXAMINED
        if partition.log.end_offset > end_offset:
            self._write_cycle.queued(partition, len(records))
        return None

    async def _examine(self, batch: SentBatch, partition: Partition) -> Examined:
        outcome: asyncio.Future[Outcome] = self._loop.create_future()
        assert batch.records is not None
        self._examiner.submit(batch.records, partition, outcome.set_result)
        found = await outcome
        if isinstance(found, KafkaError):
            raise found
        return found
