"""The transaction coordinator on this broker: machines on __transaction_state, and the markers they want."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.broker.coordinator import Coordinator, Shard
from forebay.broker.markers import write_markers
from forebay.broker.verifying import Verdict, Verification
from forebay.core.step import Effect, RequestInfo
from forebay.core.transactions import TransactionShard, WriteMarkers
from forebay.core.txn import replies
from forebay.errors import ErrorCode, KafkaError
from forebay.storage.checkpoint import TopicPartition
from forebay.wire.batch import EndTxnMarker
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"
_BUMPS_EPOCH_FROM = 2
_RETRY_S = 0.1
_RETRY_S_MAX = 5.0


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config.transactions
        self.coordinator = Coordinator(
            broker,
            topic=TRANSACTIONS_TOPIC,
            partitions=config.log_partitions,
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": str(config.log_segment_bytes),
                "compression.type": "uncompressed",
            },
            make=lambda: TransactionShard(config),
            failure=lambda request, info, error: replies.failure(request, info.api_version, error),
            perform=self._perform,
        )

    async def fresh_producer_id(self, transactional_id: str) -> int:
        """A producer id for an operation that may need one, else -1."""
        shard = self._shard(transactional_id)
        if shard is None or not shard.machine.wants_producer_id(transactional_id):
            return -1
        return await self._broker.producer_ids.next()

    # -- partitions that ask whether they take part ----------------------------------------------------

    def verify(self, question: Verification, answer: Callable[[Verdict], None]) -> None:
        """Whether partitions are in a producer's transaction; to add them takes a moment."""
        if question.add:
            self._broker.spawn(self._add(question, answer))
            return
        coordinator, identity = self.coordinator, (question.producer_id, question.producer_epoch)
        try:
            machine = coordinator.at(coordinator.partition_for(question.transactional_id)).machine
        except KafkaError as error:
            answer(dict.fromkeys(question.partitions, error))
            return
        errors = {
            at: machine.verify_partition(question.transactional_id, identity, at)
            for at in question.partitions
        }
        answer(_verdict(errors))

    async def _add(self, question: Verification, answer: Callable[[Verdict], None]) -> None:
        info = RequestInfo(api_version=AddPartitionsToTxnRequest.MAX_VERSION)
        request = AddPartitionsToTxnRequest(transactions=[_addition(question)])
        response = await self.coordinator.ask(
            question.transactional_id,
            request,
            info,
            lambda machine, ticket: machine.add_partitions_to_txn(
                ticket, request, info, self._broker.now_ms()
            ),
        )
        errors = {
            (topic.name, partition.partition_index): partition.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        answer(_verdict({at: errors.get(at, response.error_code) for at in question.partitions}))

    # -- markers ---------------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        assert isinstance(effect, WriteMarkers)
        self._broker.spawn(self._write_markers(effect))

    async def _write_markers(self, effect: WriteMarkers) -> None:
        """Write the markers of a decided transaction, again and again until every partition has its own."""
        left, delay_s = set(effect.partitions), _RETRY_S
        while left and self._still_wanted(effect):
            errors = await self._write_to(effect, sorted(left))
            written = {at for at, error in errors.items() if self._is_settled(effect, at, error)}
            left -= written
            self._tell(effect, written)
            if left:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_S_MAX)

    def _still_wanted(self, effect: WriteMarkers) -> bool:
        """A machine that was loaded again has asked for its markers anew: the old errand must not go on."""
        shard = self._shard(effect.transactional_id)
        return shard is not None and shard.machine.still_marking(effect)

    async def _write_to(
        self, effect: WriteMarkers, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The error code of each partition, once the markers are committed."""
        marker = EndTxnMarker(
            producer_id=effect.producer_id,
            producer_epoch=effect.producer_epoch,
            commit=effect.commit,
            coordinator_epoch=effect.coordinator_epoch,
        )
        bumps_epoch = effect.transaction_version >= _BUMPS_EPOCH_FROM
        return await write_markers(self._broker, marker, partitions, bumps_epoch=bumps_epoch)

    def _is_settled(self, effect: WriteMarkers, at: TopicPartition, error: int) -> bool:
        """Whether a partition needs the marker no more: it has it, is gone, or a newer epoch rules there."""
        if error == ErrorCode.NONE:
            return True
        if error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
            log.warning(
                "a partition refused the marker of a transaction that has been superseded",
                extra={"partition": f"{at[0]}-{at[1]}", "transactional_id": effect.transactional_id},
            )
            return True
        return self._broker.image.partition(*at) is None

    def _tell(self, effect: WriteMarkers, written: set[TopicPartition]) -> None:
        shard = self._shard(effect.transactional_id)
        if shard is not None:
            step = shard.machine.markers_written(effect, written, self._broker.now_ms())
            self.coordinator.carry_out(shard, step)

    def _shard(self, transactional_id: str) -> Shard[TransactionShard] | None:
        try:
            return self.coordinator.at(self.coordinator.partition_for(transactional_id))
        except KafkaError:
            return None


def _verdict(errors: dict[TopicPartition, ErrorCode] | dict[TopicPartition, int]) -> Verdict:
    return {
        at: KafkaError(ErrorCode(code), f"{at[0]}-{at[1]} is not in the transaction")
        for at, code in errors.items()
        if code != ErrorCode.NONE
    }


def _addition(question: Verification) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
    )
