"""The transaction coordinator on this broker: machines on __transaction_state, and writing their markers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.coordinators.host import CoordinatorHost
from forebay.broker.coordinators.led_anew import LedAnew
from forebay.broker.coordinators.loaded_shard import Shard
from forebay.broker.coordinators.markers import BUMPS_EPOCH_FROM, SUPERSEDED, MarkerWriter
from forebay.broker.coordinators.producer_ids import ProducerIds
from forebay.broker.coordinators.runtime import Coordinator
from forebay.broker.live_config import LiveConfig
from forebay.broker.produce.transaction_verification import Verdict, Verification
from forebay.core.cluster.image import ClusterImage
from forebay.core.step import Effect, RequestInfo
from forebay.core.topic_partition import TopicPartition
from forebay.core.transactions import replies
from forebay.core.transactions.shard import TransactionShard, WriteMarkers
from forebay.errors import ErrorCode, KafkaError, known_code
from forebay.wire.batch import EndTxnMarker
from forebay.wire.fields import Response
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

log = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"
_RETRY_S = 0.1
_RETRY_S_MAX = 1.0
"""Short, because read_committed consumers wait until the marker is there."""
_VERIFY_TIMEOUT_S = 10.0


class Transactions:
    def __init__(
        self,
        host: CoordinatorHost,
        settings: LiveConfig,
        peers: Peers,
        producer_ids: ProducerIds,
        markers: MarkerWriter,
    ) -> None:
        self._host = host
        self._peers = peers
        self._producer_ids = producer_ids
        self.markers = markers
        config = settings.current.transactions
        self.coordinator = Coordinator(
            host,
            topic=TRANSACTIONS_TOPIC,
            partitions=config.log_partitions,
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": str(config.log_segment_bytes),
                "compression.type": "uncompressed",
            },
            make=lambda partition: TransactionShard(config, coordinator_epoch=partition.leader_epoch),
            failure=lambda request, info, error: replies.failure(request, info.api_version, error),
            perform=self._perform,
        )
        self._led_anew = LedAnew(host.metadata, host.loop)
        self._under_way: dict[asyncio.Task[Any], None] = {}
        """Tasks that write markers."""

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        self.coordinator.follow()
        self._led_anew.follow(before, after)

    def close(self) -> None:
        """Cancel the writing of markers: the next coordinator finds the transactions in the log."""
        self.coordinator.close()
        for task in list(self._under_way):
            task.cancel()

    async def fresh_producer_id(self, transactional_id: str) -> int:
        """A producer id for an operation that may need one, otherwise -1; raises KafkaError."""
        shard = self._shard(transactional_id)
        if shard is None or not shard.machine.wants_producer_id(transactional_id):
            return -1
        return await self._producer_ids.next()

    # -- partitions that verify a transaction ------------------------------------------------------------

    def verify(self, question: Verification, answer: Callable[[Verdict], None]) -> None:
        """Check if partitions are in a producer's transaction; `answer` gets the verdict.

        A coordinator on this broker answers at once, if all its state is committed. A failover may lose
        uncommitted state: a batch admitted because of it would begin a transaction that nobody ends.
        """
        transactional_id = question.transactional_id
        try:
            leader = self.coordinator.leader_of(transactional_id)
            shard = self._shard(transactional_id) if leader == self._host.node_id else None
            if question.add or shard is None or shard.newest_commit is not None:
                self._host.background.spawn(
                    self._verify_later(leader, question, answer),
                    f"verifying a transaction of {transactional_id!r}",
                )
                return
        except KafkaError as error:
            answer(dict.fromkeys(question.partitions, error))
            return
        identity, verify = (question.producer_id, question.producer_epoch), shard.machine.verify_partition
        answer(_verdict({at: verify(transactional_id, identity, at) for at in question.partitions}))

    async def _verify_later(
        self, leader: int, question: Verification, answer: Callable[[Verdict], None]
    ) -> None:
        request = AddPartitionsToTxnRequest(transactions=[_transaction(question)])
        try:
            if leader == self._host.node_id:
                response = await self._add(question.transactional_id, request)
            else:
                response = await self._peers.ask(
                    leader,
                    request,
                    version=AddPartitionsToTxnRequest.MAX_VERSION,
                    timeout_s=_VERIFY_TIMEOUT_S,
                )
        except KafkaError as error:
            answer(dict.fromkeys(question.partitions, error))
            return
        except Exception:
            unknown = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator could not be asked")
            answer(dict.fromkeys(question.partitions, unknown))
            raise
        assert isinstance(response, AddPartitionsToTxnResponse)
        answer(_verdict(_codes(response, question.partitions)))

    async def _add(self, transactional_id: str, request: AddPartitionsToTxnRequest) -> Response:
        info, time = RequestInfo(api_version=AddPartitionsToTxnRequest.MAX_VERSION), self._host.time
        response: Response = await self.coordinator.ask(
            transactional_id,
            request,
            info,
            lambda machine, ticket: machine.add_partitions_to_txn(ticket, request, info, time.now()),
        )
        return response

    # -- markers ---------------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        assert isinstance(effect, WriteMarkers)
        self._host.background.spawn(self._carry_out(effect), _marking(effect))

    async def _carry_out(self, effect: WriteMarkers) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way[task] = None
        try:
            await self._write_markers(effect)
        finally:
            del self._under_way[task]

    async def _write_markers(self, effect: WriteMarkers) -> None:
        """Write the markers of a decided transaction, and repeat that until every partition has its
        marker."""
        left, delay_s = set(effect.partitions), _RETRY_S
        while left and self._still_wanted(effect):
            image = self._host.metadata.image
            errors = await self._try_to_write(effect, sorted(left))
            written = {at for at, error in errors.items() if self._is_settled(effect, at, error)}
            left -= written
            self._tell(effect, written)
            if left:
                is_led_anew = await self._led_anew.wait(left, image, delay_s)
                delay_s = _RETRY_S if is_led_anew else min(2 * delay_s, _RETRY_S_MAX)

    def _still_wanted(self, effect: WriteMarkers) -> bool:
        """False if the machine was loaded again: it has requested its markers anew."""
        # A broker that loses its connection for a while keeps its machines, and they do not ask again.
        shard = self._running(effect.transactional_id)
        return shard is not None and shard.machine.still_marking(effect)

    async def _try_to_write(
        self, effect: WriteMarkers, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        try:
            return await self._write_to(effect, partitions)
        except Exception as error:  # a decided transaction gets its markers, whatever goes wrong on the way
            self._host.background.failed(_marking(effect), error)
            return {}

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
        bumps_epoch = effect.transaction_version >= BUMPS_EPOCH_FROM
        return await self.markers.write(
            marker, partitions, bumps_epoch=bumps_epoch, wanted=lambda: self._still_wanted(effect)
        )

    def _is_settled(self, effect: WriteMarkers, at: TopicPartition, error: int) -> bool:
        """True if a partition no longer needs the marker: it has it, is deleted, or has a newer epoch.

        A topic that cannot be read is not deleted: its partitions get their markers when it can be.
        """
        if error == ErrorCode.NONE:
            return True
        if error in SUPERSEDED:
            log.warning(
                "a partition refused the marker of a transaction that has been superseded",
                extra={"partition": f"{at[0]}-{at[1]}", "transactional_id": effect.transactional_id},
            )
            return True
        image = self._host.metadata.image
        return not image.path(*at) and at[0] not in image.unreadable.topics

    def _tell(self, effect: WriteMarkers, written: set[TopicPartition]) -> None:
        shard = self._running(effect.transactional_id)
        if shard is not None:
            now = self._host.time.now()
            self.coordinator.run(
                shard, "noting markers", lambda machine: machine.markers_written(effect, written, now)
            )

    def _running(self, transactional_id: str) -> Shard[TransactionShard] | None:
        return self.coordinator.running(self.coordinator.partition_for(transactional_id))

    def _shard(self, transactional_id: str) -> Shard[TransactionShard] | None:
        try:
            return self.coordinator.at(self.coordinator.partition_for(transactional_id))
        except KafkaError:
            return None


def _marking(effect: WriteMarkers) -> str:
    return f"writing the markers of {effect.transactional_id!r}"


def _verdict(errors: Mapping[TopicPartition, int]) -> Verdict:
    return {
        at: KafkaError(known_code(code), f"{at[0]}-{at[1]} is not in the transaction")
        for at, code in errors.items()
        if code != ErrorCode.NONE
    }


def _codes(
    response: AddPartitionsToTxnResponse, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The error code of each partition; a partition that is not in the response counts as refused."""
    said = {
        (topic.name, partition.partition_index): partition.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }
    silent = response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
    return {at: said.get(at, silent) for at in partitions}


def _transaction(question: Verification) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=not question.add,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
    )
