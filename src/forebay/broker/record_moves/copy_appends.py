"""Appending records that were copied from a folded partition, to the one that takes its messages.

They were accepted once, by the settings of that time. Today's settings do not count: a copy must not
fail because the topic has a smaller max.message.bytes now, or no longer takes old timestamps. Sequences are
checked as those of any producer, which is how a copy that is sent again is found.
"""

from __future__ import annotations

import asyncio

from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.partition.append_refusals import not_enough_replicas, refusal, require_known_producers
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.produce.commit_wait import committed
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.coordination.metadata import Metadata
from forebay.core.partition.batch_rules import place
from forebay.core.partition.producers.producer_admission import APPEND, Repeats, admit
from forebay.errors import ErrorCode, KafkaError, known_code
from forebay.wire.batch import HEADER_SIZE, crc_ok, read_header
from forebay.wire.messages.append_copies import AppendCopiesRequest, AppendCopiesResponse

_TIMEOUT_S = 20.0


class CopyAppends:
    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionTable,
        peers: Peers,
        write_cycle: WriteCycle,
        loop: asyncio.AbstractEventLoop,
        *,
        node_id: int,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._peers = peers
        self._write_cycle = write_cycle
        self._loop = loop
        self._node_id = node_id

    async def append(self, topic_id: bytes, index: int, batch: bytearray) -> None:
        """Returns once the batch is committed, be it by an earlier attempt.

        Raises KafkaError. After most errors nobody knows whether it will be committed.
        """
        topic = self._metadata.image.topic_by_id(topic_id)
        if topic is None or index >= len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        leader = topic.leader_of(index)
        if leader == self._node_id:
            await self._append_here(topic_id, index, memoryview(batch))
            return
        request = AppendCopiesRequest(topic_id=topic_id, index=index, records=memoryview(batch))
        response = await self._peers.ask(leader, request, version=0, timeout_s=_TIMEOUT_S)
        assert isinstance(response, AppendCopiesResponse)
        if response.error_code:
            raise KafkaError(known_code(response.error_code), response.error_message or "a copy was refused")

    async def answer(self, request: AppendCopiesRequest) -> AppendCopiesResponse:
        """Append the records that another broker has copied. They are a buffer of their own."""
        try:
            if request.records is None:
                raise KafkaError(ErrorCode.INVALID_RECORD, "a copy of nothing")
            await self._append_here(request.topic_id, request.index, request.records)
        except KafkaError as error:
            return AppendCopiesResponse(error_code=error.code, error_message=error.message)
        return AppendCopiesResponse()

    async def _append_here(self, topic_id: bytes, index: int, batch: memoryview) -> None:
        partition = self._partitions.by_id(topic_id, index)
        if len(batch) < HEADER_SIZE or not crc_ok(batch, 0, len(batch)):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the copy was damaged on its way")
        if partition.fold is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is closed")
        if not partition.enough_replicas:
            raise not_enough_replicas(str(partition), partition.producers, batch)
        if queue_copies(partition, batch):
            self._write_cycle.queued(partition, len(batch))
        await committed(self._write_cycle, partition, self._loop)


def queue_copies(partition: Partition, batch: memoryview) -> bool:
    """Queue a batch of copies for writing; False if it is in the log already. Raises KafkaError."""
    log, producers, header = partition.log, partition.producers, read_header(batch)
    decision = admit(producers.find(header.producer_id), header)
    if decision is not APPEND:
        require_known_producers(log)
    if isinstance(decision, Repeats):
        producers.heard(header.producer_id)
        return False
    if decision is not APPEND:
        raise refusal(header, decision, asked=False, offline=log.offline)
    header = place(batch, header, log.end_offset, partition.leader_epoch)
    log.append(batch, header)
    producers.accept(header)
    return True
