"""Batches whose transaction is being verified while their partition is folded, or comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.broker.partition.partition import Partition
from forebay.broker.produce.transaction_verification import Admission, Verdict, Verification, verify
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import TRANSACTIONAL
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from forebay.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import WireClient, batch, create
from support.waiting import Patience

PRODUCER = 4711
TOPIC = "resized"
IMPLICIT_ADD = 12


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path) as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        create(client, TOPIC, 4)
        yield client


def resize(client: WireClient, count: int) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)], timeout_ms=60_000
    )
    (result,) = client.call(request, 3).results
    assert result.error_code == 0, result.error_message


def end_transaction(client: WireClient, partition: int, *, epoch: int, version: int) -> int:
    """Version 2: `epoch` is the one after the transaction's."""
    marker = WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[partition])],
        coordinator_epoch=0,
        transaction_version=version,
    )
    (result,) = client.call(WriteTxnMarkersRequest(markers=[marker]), 2).markers
    code: int = result.topics[0].partitions[0].error_code
    return code


def first_batch(epoch: int = 0) -> memoryview:
    numbers = {"producer_id": PRODUCER, "producer_epoch": epoch, "base_sequence": 0}
    return memoryview(bytearray(batch(b"v", attributes=TRANSACTIONAL, **numbers)))


def guarded(partition: int, epoch: int = 0) -> Callable[[Node], object]:
    return lambda node: node.partitions.get(TOPIC, partition).verifications.begin(PRODUCER, epoch, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_behind_the_end_of_its_transaction_is_refused_when_its_partition_is_back(
    broker: LocalBroker, client: WireClient, version: int
) -> None:
    """A closed partition without that transaction takes no marker, but the transaction has ended."""
    guard = broker.on_loop(guarded(3))
    resize(client, 2)
    assert end_transaction(client, 3, epoch=version - 1, version=version) == ErrorCode.NONE
    resize(client, 4)
    patience = Patience("the partition takes messages again")
    while broker.on_loop(lambda node: node.partitions.get(TOPIC, 3).fold) is not None:
        patience.check()

    def append_it(node: Node) -> None:
        node.partitions.get(TOPIC, 3).append(first_batch(), node.time.now_ms(), guard=guard)

    with pytest.raises(KafkaError) as refused:
        broker.on_loop(append_it)
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE
    assert broker.on_loop(lambda node: len(node.partitions.get(TOPIC, 3).producers.transactions)) == 0


def test_the_next_transaction_keeps_its_verification(broker: LocalBroker, client: WireClient) -> None:
    """Its producer is ahead, in the epoch that the marker of the one before it names."""
    guard = broker.on_loop(guarded(3, epoch=1))
    resize(client, 2)
    assert end_transaction(client, 3, epoch=1, version=2) == ErrorCode.NONE

    def verified_from(node: Node) -> int | None:
        return node.partitions.get(TOPIC, 3).verifications.verified_from(PRODUCER, guard)

    assert broker.on_loop(verified_from) == 0


def test_a_partition_that_opens_while_the_coordinator_is_asked_about_others_is_asked_about_next_time(
    broker: LocalBroker, client: WireClient
) -> None:
    """Otherwise the batch would come to it unverified, which is an error that producers take as final."""
    resize(client, 2)

    def story(node: Node) -> KafkaError | None:
        closed = node.partitions.get(TOPIC, 3)
        assert closed.fold is not None
        asked: list[Callable[[Verdict], None]] = []
        admissions: list[Admission] = []

        def ask(question: Verification, answer: Callable[[Verdict], None]) -> None:
            assert question.partitions == [(TOPIC, 0)]
            asked.append(answer)

        data = [PartitionProduceData(index=index, records=first_batch()) for index in (0, 3)]
        topic = TopicProduceData(name=TOPIC, partition_data=data)
        request = ProduceRequest(transactional_id="t", acks=-1, topic_data=[topic])
        closed.fold.is_returning = True
        verify(
            request,
            IMPLICIT_ADD,
            partitions=node.partitions,
            takers=node.takers,
            ask=ask,
            proceed=admissions.append,
        )
        fold, closed.fold = closed.fold, None
        asked[0]({})
        assert _refusal(admissions[0], 0, node.partitions.get(TOPIC, 0)) is None
        refusal = _refusal(admissions[0], 3, closed)
        admissions[0].release()
        closed.fold = fold
        return refusal

    error = broker.on_loop(story)
    assert error is not None and error.code == ErrorCode.NOT_ENOUGH_REPLICAS


def _refusal(admission: Admission, index: int, partition: Partition) -> KafkaError | None:
    try:
        admission.guard_for(index, partition)
    except KafkaError as error:
        return error
    return None
