"""Batches to their leaders: idempotent, in order, several requests under way.

Each batch carries the producer's id, its epoch and a sequence number per partition, so that a broker can tell
a repetition and a gap. When anything fails, all that is under way is awaited first; then what was not
acknowledged goes out again, oldest first and one at a time, to the present leader. A batch that followed a
lost one was refused as out of order and is sent behind it. So nothing is doubled and nothing changes places,
whatever leaders and connections do.

A producer outlives its task: the next task in the same Python worker goes on with its sequence numbers, which
spares the brokers a new producer to remember for every micro-batch.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple

from forebay.errors import ConfigError, ErrorCode, ForebayError, KafkaError
from forebay.lazy import dataclass
from forebay.spark.sink.encode import Payload
from forebay.spark.sink.topic_rules import TopicRules, rules_of
from forebay.spark.wire.connections import TRANSACTION, BrokerConnection, Cluster, check
from forebay.wire.batch import MAGIC, NO_LEADER_EPOCH, SEQUENCE_MASK, TRANSACTIONAL, BatchHeader, assemble
from forebay.wire.compression import Codec, compress
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

ACKS_ALL = -1
IN_FLIGHT_MAX = 5
"""Requests under way per broker: a broker remembers this many batches of a producer in each partition."""

_PRODUCE_VERSION = 11
"""The last one in which a producer adds partitions to its transaction by itself."""
_ADD_PARTITIONS_VERSION = 3
_DONE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)

_ADVICE = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic, or lower kafka.batch.size",
    ErrorCode.RECORD_LIST_TOO_LARGE: "lower kafka.batch.size",
    ErrorCode.INVALID_TIMESTAMP: "the topic does not take timestamps this far from now",
    ErrorCode.INVALID_RECORD: "is the topic compacted, and a key null?",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic first",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not write to the topic",
}


class Identity(NamedTuple):
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    codec: int = Codec.NONE
    batch_bytes: int = 1_000_000
    """Of records before compression. The largest batch that brokers take by default is a little larger."""
    request_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    topic: str
    partition: int
    data: bytearray


@dataclass(slots=True)
class _Posted:
    """A request that has not been answered, as far as we know."""

    connection: BrokerConnection
    batches: Sequence[_Batch]


@dataclass(slots=True)
class Delivered:
    rows: int = 0
    bytes: int = 0
    topics: set[str] = field(default_factory=set)


def new_identity(cluster: Cluster, transactional_id: str | None = None, timeout_ms: int = 60_000) -> Identity:
    """A new producer id, or that of a transactional id with an epoch that fences earlier producers."""

    def ask() -> Identity:
        coordinator = (
            cluster.coordinator(transactional_id, TRANSACTION) if transactional_id else cluster.any()
        )
        answer = coordinator.ask(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        )
        if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise ConfigError(
                f"kafka.transaction.timeout.ms={timeout_ms} is longer than the brokers allow:"
                " lower it, or raise their transaction.max.timeout.ms"
            )
        check(answer.error_code, f"no producer id for {transactional_id or 'this task'}")
        return Identity(answer.producer_id, answer.producer_epoch)

    return cluster.attempt(ask)


class Producer:
    """Not for several threads. After an error it is of no use any more: `abandon` it."""

    def __init__(
        self,
        cluster: Cluster,
        identity: Identity,
        limits: Limits,
        transactional_id: str | None = None,
        *,
        family: str = "",
    ) -> None:
        """`family`: how the transactional ids begin whose transactions are renewed when this one grows."""
        self.identity = identity
        self.delivered = Delivered()
        self._cluster = cluster
        self._limits = limits
        self._transactional_id = transactional_id
        self._family = family
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()
        self._under_way: deque[_Posted] = deque()

    def partitions(self, topic: str) -> int:
        """How many the topic has; it is created where brokers allow that."""
        self.flush()

        def ask() -> int:
            known = self._cluster.refresh([topic], create=True).topics
            check(known[0].error_code, f"topic {topic}")
            return len(known[0].partitions)

        try:
            return self._cluster.attempt(ask)
        except KafkaError as error:
            raise _explained(error, f"cannot write to topic {topic}") from error

    def rules(self, topic: str) -> TopicRules:
        """The settings of the topic that say which messages it takes."""
        self.flush()
        return rules_of(self._cluster, topic)

    def send(self, topic: str, payloads: Iterable[tuple[int, Payload]]) -> None:
        """Send these, in this order within each partition. Blocks while enough is under way already."""
        request: dict[int, _Batch] = {}
        size = 0
        for partition, payload in payloads:
            if partition in request or size + len(payload.records) > self._limits.request_bytes:
                self._post(list(request.values()))
                request, size = {}, 0
            request[partition] = self._assembled(topic, partition, payload)
            size += len(request[partition].data)
        self._post(list(request.values()))

    def flush(self) -> None:
        """Return when every batch was acknowledged."""
        while self._under_way:
            self._collect()

    def abandon(self) -> None:
        """Drop what is under way, and all connections: answers may still come on any of them."""
        self._under_way.clear()
        self._cluster.close()

    # -- out ------------------------------------------------------------------------------------------------

    def _assembled(self, topic: str, partition: int, payload: Payload) -> _Batch:
        sequence = self._sequences.get((topic, partition), 0)
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=self._limits.codec | (TRANSACTIONAL if self._transactional_id else 0),
            last_offset_delta=payload.count - 1,
            base_timestamp=payload.base_timestamp,
            max_timestamp=payload.max_timestamp,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            record_count=payload.count,
        )
        data = assemble(header, compress(self._limits.codec, payload.records))
        self._sequences[topic, partition] = (sequence + payload.count) & SEQUENCE_MASK
        self.delivered.rows += payload.count
        self.delivered.bytes += len(data)
        self.delivered.topics.add(topic)
        return _Batch(topic=topic, partition=partition, data=data)

    def _post(self, batches: Sequence[_Batch]) -> None:
        if self._transactional_id is not None:
            self._add_to_transaction({(batch.topic, batch.partition) for batch in batches} - self._added)
        if not all(self._cluster.knows(batch.topic, batch.partition) for batch in batches):
            self.flush()  # a connection with answers on their way takes no question
        by_leader: dict[BrokerConnection, list[_Batch]] = defaultdict(list)
        unsent: list[_Batch] = []
        for batch in batches:
            try:
                by_leader[self._cluster.leader_for_writes(batch.topic, batch.partition)].append(batch)
            except KafkaError:
                unsent.append(batch)
        for connection, group in by_leader.items():
            if not self._post_to(connection, group):
                unsent += group
        if unsent:
            self._recover([], unsent)

    def _post_to(self, connection: BrokerConnection, batches: Sequence[_Batch]) -> bool:
        while connection.unanswered >= IN_FLIGHT_MAX:
            self._collect()
        if connection.closed:
            return False
        try:
            connection.post(self._request(batches), _PRODUCE_VERSION)
        except KafkaError:
            return False
        self._under_way.append(_Posted(connection, batches))
        return True

    def _request(self, batches: Iterable[_Batch]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = defaultdict(list)
        for batch in batches:
            data = PartitionProduceData(index=batch.partition, records=memoryview(batch.data))
            topics[batch.topic].append(data)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ACKS_ALL,
            timeout_ms=int(self._cluster.timing.request_s * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )

    def _add_to_transaction(self, partitions: set[tuple[str, int]]) -> None:
        if not partitions or self._transactional_id is None:
            return
        self.flush()
        transactional_id = self._transactional_id
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(partitions):
            topics[topic].append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=own) for name, own in topics.items()
            ],
            renew=[self._family] if self._family else [],
        )

        def ask() -> None:
            coordinator = self._cluster.coordinator(transactional_id, TRANSACTION)
            answer = coordinator.ask(request, _ADD_PARTITIONS_VERSION)
            for topic in answer.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    check(
                        result.partition_error_code, f"{topic.name}-{result.partition_index} in a transaction"
                    )

        self._cluster.attempt(ask)
        self._added |= partitions

    # -- back -----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Read the oldest answer that is due, and mend what it says has failed."""
        failed = self._answer(self._under_way.popleft())
        if failed:
            self._recover(failed, [])

    def _answer(self, posted: _Posted) -> list[_Batch]:
        """Those of the batches that have to be sent again."""
        if posted.connection.closed:
            return list(posted.batches)
        try:
            response = posted.connection.read()
        except KafkaError:
            return list(posted.batches)
        return _refused(posted.batches, response)

    def _recover(self, older: list[_Batch], newer: list[_Batch]) -> None:
        """Await all that is under way, then send what has failed again, in the order it was sent first.

        What has failed already is `older` than all that is under way, or `newer`.
        """
        failed = older
        while self._under_way:
            failed += self._answer(self._under_way.popleft())
        self._cluster.forget()
        for batch in [*failed, *newer]:
            try:
                self._cluster.attempt(partial(self._deliver, batch))
            except KafkaError as error:
                raise _explained(error, f"cannot write to {batch.topic}-{batch.partition}") from error

    def _deliver(self, batch: _Batch) -> None:
        connection = self._cluster.leader_for_writes(batch.topic, batch.partition)
        response = connection.ask(self._request([batch]), _PRODUCE_VERSION)
        code, message = _results(response)[batch.topic, batch.partition]
        if code not in _DONE:
            raise KafkaError(code, message or code.name)


def _refused(batches: Sequence[_Batch], response: Any) -> list[_Batch]:
    """Batches to send again. One that no repetition can help is an error here and now.

    Out of order is what a batch is called whose predecessor was lost, so that it is worth a repetition behind
    that one; where there is no such predecessor, the repetition finds out.
    """
    results = _results(response)
    again = []
    for batch in batches:
        code, message = results[batch.topic, batch.partition]
        if code in _DONE:
            continue
        if not code.retriable and code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            error = KafkaError(code, message or code.name)
            raise _explained(error, f"cannot write to {batch.topic}-{batch.partition}")
        again.append(batch)
    return again


def _results(response: Any) -> dict[tuple[str, int], tuple[ErrorCode, str | None]]:
    return {
        (topic.name, partition.index): (ErrorCode(partition.error_code), partition.error_message)
        for topic in response.responses
        for partition in topic.partition_responses
    }


def _explained(error: KafkaError, what: str) -> ForebayError:
    if error.code in _FENCED:
        advice = "another attempt of the same write has taken over"
    else:
        advice = _ADVICE.get(error.code, "")
    return KafkaError(error.code, f"{what}: {error.message}" + (f"; {advice}" if advice else ""))
