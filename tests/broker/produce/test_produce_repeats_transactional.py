"""Transactional requests are answered the same on both ways, wherever their transaction is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from forebay.core.partition.folds.aliases import alias_of
from forebay.errors import ErrorCode
from forebay.wire.batch import TRANSACTIONAL
from forebay.wire.fields import Request
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.list_transactions import ListTransactionsRequest
from support.brokers.broker_process import BrokerProcess
from support.clients.both_ways import ACKS_ALL, NOW, Pair
from support.clients.transacting import COME_BACK
from support.clients.wire_client import (
    CREATE_TOPICS,
    TIMEOUT_SECONDS,
    WireClient,
    batch,
    create_topic,
    only_partition,
    produce,
    read_all,
)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def pair(broker: BrokerProcess, client: WireClient, topic: str) -> Iterator[Pair]:
    pair = Pair(broker.bootstrap, client, topic)
    yield pair
    pair.close()


class Transactions:
    """What a transactional client of version 1 asks its coordinator: its epoch is the same in all of them."""

    def __init__(self, client: WireClient, transactional_id: str, topics: Sequence[str]) -> None:
        self._client = client
        self._topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in topics]
        self.id = transactional_id
        self._ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 6)
        begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        self.producer_id = self._ask(begin, 4).producer_id

    def _ask(self, request: Request, version: int) -> Any:
        """The answer, once the coordinator is there."""
        return answered(lambda: self._client.call(request, version))

    def begin(self) -> None:
        added = self._ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=self._topics,
            ),
            3,
        )
        results = [
            each for topic in added.results_by_topic_v3_and_below for each in topic.results_by_partition
        ]
        assert {each.partition_error_code for each in results} == {ErrorCode.NONE}

    def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=0, committed=commit
        )
        assert self._ask(request, 3).error_code == ErrorCode.NONE
        give_up_at = time.monotonic() + TIMEOUT_SECONDS
        while not self._state().startswith("Complete"):  # until the partitions have their markers
            assert time.monotonic() < give_up_at
            time.sleep(0.01)

    def _state(self) -> str:
        listed = self._client.call(ListTransactionsRequest(), 0).transaction_states
        (state,) = [each.transaction_state for each in listed if each.transactional_id == self.id]
        assert isinstance(state, str)
        return state

    def batch(self, sequence: int, count: int = 1) -> bytes:
        return batch(
            *[b"%d" % (sequence + n) for n in range(count)],
            timestamp=NOW,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )


def answered(ask: Callable[[], Any]) -> Any:
    """The first answer that does not ask to come back, as a coordinator does that is just being made."""
    give_up_at = time.monotonic() + TIMEOUT_SECONDS
    while True:
        answer = ask()
        each = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        if getattr(each, "error_code", ErrorCode.NONE) not in COME_BACK:
            return answer
        assert time.monotonic() < give_up_at, answer
        time.sleep(0.05)


@pytest.mark.parametrize("version", [11, 12])
def test_a_client_cannot_begin_a_transaction_under_an_alias(client: WireClient, version: int) -> None:
    """The coordinator would be asked about the partition that the alias names, and write its marker there:
    where the batch is, the transaction would never end."""
    name = f"aliases-{version}"
    assert not client.call(create_topic(name, partitions=2), CREATE_TOPICS).topics[0].error_code
    transactions = Transactions(client, name, [name])
    transactions.begin()
    own_id, transactions.producer_id = transactions.producer_id, alias_of(transactions.producer_id, 0, 0)
    request = produce(name, transactions.batch(0), partition=1, acks=ACKS_ALL, transactional_id=name)
    refused = only_partition(client.call(request, version)).error_code
    transactions.producer_id = own_id
    transactions.end(commit=True)
    assert refused == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("acks", [1, ACKS_ALL])
@pytest.mark.parametrize("version", [9, 11, 12])
def test_transactional_repeats(pair: Pair, client: WireClient, topic: str, version: int, acks: int) -> None:
    """Verified, within a transaction, repeated, after its end, and with numbers that were used before."""
    txn = Transactions(client, topic, pair.names)

    def send(*batches: bytes) -> list[tuple[int, int]]:
        for data in batches:
            pair.send(data, version, acks=acks, transactional_id=txn.id)
        return [(answer.error_code, answer.base_offset) for answer in pair.compare(len(batches))]

    ok, used = ErrorCode.NONE, ErrorCode.UNKNOWN_PRODUCER_ID
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    txn.begin()
    assert send(*map(txn.batch, (0, 1, 2, 1, 7, 3))) == [
        (ok, 0),
        (ok, 1),
        (ok, 2),
        (ok, 1),
        (out_of_order, -1),
        (ok, 3),
    ]
    txn.end(commit=False)
    assert send(*map(txn.batch, (3, 2, 9))) == [(used, -1), (used, -1), (out_of_order, -1)]
    txn.begin()
    reused = [txn.batch(3), txn.batch(2, 2), txn.batch(3)]
    assert send(*reused) == [(used, -1)] * 3
    # Offset 4 is the marker's.
    assert send(*map(txn.batch, (4, 5, 4, 3, 5))) == [(ok, 5), (ok, 6), (ok, 5), (used, -1), (ok, 6)]
    txn.end(commit=True)
    for name in pair.names:
        data = [value for _, value in read_all(client, name) if value is not None and value.isdigit()]
        assert data == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("acks", [1, ACKS_ALL])
@pytest.mark.parametrize("version", [7, 9, 12])
def test_a_transactional_batch_needs_the_transactional_id(
    pair: Pair, client: WireClient, topic: str, version: int, acks: int
) -> None:
    """Also among plain requests, and within a transaction that was begun with the id."""
    txn = Transactions(client, topic, pair.names)
    txn.begin()
    pair.send(txn.batch(0), version, acks=acks, transactional_id=txn.id)
    plain = batch(b"plain", timestamp=NOW)
    for data in (plain, plain, plain, txn.batch(1), plain):
        pair.send(data, version, acks=acks)
    pair.send(txn.batch(1), version, acks=acks, transactional_id=txn.id)
    codes = [answer.error_code for answer in pair.compare(7)]
    txn.end(commit=True)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert codes == [0, 0, 0, 0, refused, 0, 0]
