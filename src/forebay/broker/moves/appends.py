"""Appending a mover's batch to its target, wherever that is led, as an idempotent producer would.

The target is named by its topic's id: a topic that was deleted and made again under the same name is another.
"""

from __future__ import annotations

import asyncio

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.peers import Peers
from forebay.broker.partition.append_refusals import not_enough_replicas
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.passed_on_batches import PassedOn, append_passed_on, pass_on, pass_on_removed
from forebay.broker.partition.table import PartitionTable
from forebay.broker.produce.commit_wait import committed
from forebay.broker.produce.folded_batches import Handovers, folded_request
from forebay.broker.produce.record_checks import Examiner, Outcome
from forebay.broker.produce.write_cycle import ACKS_ALL, WriteCycle
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.partition.folds.closed_partition import OUT_OF_PLACE, PassOn
from forebay.core.partition.record_rules import Examined, Unexamined
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
        partitions: PartitionTable,
        peers: Peers,
        handovers: Handovers,
        write_cycle: WriteCycle,
        examiner: Examiner,
        time: BrokerTime,
        loop: asyncio.AbstractEventLoop,
        *,
        node_id: int,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._peers = peers
        self._handovers = handovers
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
        removed = pass_on_removed(topic, index, memoryview(batch), self._time.now_ms())
        if removed is not None:
            await self._pass_on(topic_id, removed)
            return
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{index} has no leader now")
        if leader == self._node_id:
            await self._append_here(self._partitions.get(topic.name, index), memoryview(batch))
        else:
            await self._append_there(leader, topic_id, index, batch)

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

    async def _append_here(
        self, partition: Partition, batch: memoryview, known: PassOn | None = None
    ) -> None:
        """`known`: it was sent for a folded partition, which knows this of its producer."""
        if partition.fold is not None:
            await self._pass_on(partition.topic_id, pass_on(partition, batch, known, self._time.now_ms()))
            return
        known = known or PassOn()
        try:
            try:
                self._queue(partition, batch, known)
            except Unexamined:
                examined = await self._examine(batch, partition)
                self._queue(partition, batch, known, examined)
        except KafkaError as error:
            if known.repeats is None or error.code not in OUT_OF_PLACE:
                raise
        # A duplicate's original may not be committed yet either.
        await committed(self._write_cycle, partition, self._loop)

    async def _pass_on(self, topic_id: bytes, passed: PassedOn) -> None:
        """Have a batch for a folded partition appended to the one that takes it."""
        topic = self._metadata.image.topic_by_id(topic_id)
        if topic is None or passed.target >= len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        leader = topic.partitions[passed.target].leader
        if leader == self._node_id:
            partition = self._partitions.get(topic.name, passed.target)
            await self._append_here(partition, passed.records, passed.known)
            return
        request = folded_request(passed.records, passed.known, topic_id, passed.target)
        answer = await self._handovers.ask(leader, request)
        if answer.error_code and not (passed.known.repeats and answer.error_code in OUT_OF_PLACE):
            raise KafkaError(known_code(answer.error_code), answer.error_message or "the batch was refused")

    def _queue(
        self, partition: Partition, batch: memoryview, known: PassOn, examined: Examined | None = None
    ) -> None:
        if not partition.enough_replicas:
            raise not_enough_replicas(str(partition), partition.producers, batch)
        end_offset = partition.log.end_offset
        topic = self._metadata.image.topic_by_id(partition.topic_id)
        if topic is None:
            raise partition.not_leader()
        append_passed_on(partition, topic, batch, self._time.now_ms(), known, examined=examined)
        if partition.log.end_offset > end_offset:
            self._write_cycle.queued(partition, len(batch))

    async def _examine(self, batch: memoryview, partition: Partition) -> Examined:
        outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._examiner.submit(batch, partition, outcome.set_result)
        found = await outcome
        if isinstance(found, KafkaError):
            raise found
        return found
