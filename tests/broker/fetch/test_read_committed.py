"""Transactions over the wire: who sees what and when, and what partitions refuse."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.wire.batch import TRANSACTIONAL, build_batch, read_marker, records, split
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from forebay.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from forebay.wire.records import Record
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.wire_client import (
    FETCH,
    LATEST,
    LIST_OFFSETS,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    fetch,
    list_offsets,
    only_partition,
    produce,
    read,
    values_of,
)

READ_COMMITTED = 1
IMPLICIT_ADD = 12
"""The Produce version that adds partitions to transactions."""
TRY_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
_ids = itertools.count()


def until_ready(ask: Callable[[], Any]) -> Any:
    """The answer, once the coordinator has done what it still had to do."""
    deadline = time.monotonic() + 60
    while True:
        answer = ask()
        code = getattr(answer, "error_code", None)
        if code is None:
            code = answer.partition_error_code
        if code not in TRY_AGAIN or time.monotonic() > deadline:
            return answer
        time.sleep(0.01)


class Producer:
    """A transactional producer, byte by byte; the newer kind when `v2`."""

    def __init__(self, client: WireClient, topic: str, *, v2: bool = False) -> None:
        self.client = client
        self.topic = topic
        self.v2 = v2
        self.transactional_id = f"{topic}-{next(_ids)}"
        self.sequence = 0
        started = self._until_ready(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            ),
            4,
        )
        assert started.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = started.producer_id, started.producer_epoch

    def _until_ready(self, request: Any, version: int) -> Any:
        return until_ready(lambda: self.client.call(request, version))

    def add(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[0])],
        )

        def ask() -> Any:
            (topic,) = self.client.call(request, 3).results_by_topic_v3_and_below
            return topic.results_by_partition[0]

        assert until_ready(ask).partition_error_code == ErrorCode.NONE

    def batch(self, *values: bytes) -> bytes:
        now = int(time.time() * 1000)
        made = build_batch(
            [Record(n, now, b"key", value) for n, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL,
        )
        self.sequence += len(values)
        return bytes(made)

    def send(self, *values: bytes) -> Any:
        version = IMPLICIT_ADD if self.v2 else PRODUCE
        request = produce(self.topic, self.batch(*values), acks=-1, transactional_id=self.transactional_id)
        return until_ready(lambda: only_partition(self.client.call(request, version)))

    def begin(self, *values: bytes) -> None:
        if not self.v2:
            self.add()
        assert self.send(*values).error_code == ErrorCode.NONE

    def end(self, *, commit: bool) -> None:
        ended = self._until_ready(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            5 if self.v2 else 3,
        )
        assert ended.error_code == ErrorCode.NONE
        if self.v2:
            self.producer_id, self.epoch, self.sequence = ended.producer_id, ended.producer_epoch, 0


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def latest(client: WireClient, topic: str, *, committed: bool) -> int:
    request = list_offsets(topic, LATEST)
    request.isolation_level = READ_COMMITTED if committed else 0
    offset: int = client.call(request, LIST_OFFSETS).topics[0].partitions[0].offset
    return offset


def wait_until_stable(client: WireClient, topic: str) -> int:
    """Markers are written after EndTxn is answered."""
    deadline = time.monotonic() + 60
    while (end := latest(client, topic, committed=False)) != latest(client, topic, committed=True):
        assert time.monotonic() < deadline, "the transaction did not end"
        time.sleep(0.01)
    return end


def committed_values(client: WireClient, topic: str, offset: int = 0) -> list[bytes | None]:
    """What a client reading committed messages makes of a fetch: by the list of aborted transactions."""
    data = read(client, topic, offset, isolation_level=READ_COMMITTED)
    assert data.error_code == ErrorCode.NONE
    return visible(data)


def visible(data: Any) -> list[bytes | None]:
    pending = sorted(((a.first_offset, a.producer_id) for a in data.aborted_transactions), reverse=True)
    aborting: set[int] = set()
    values: list[bytes | None] = []
    buffer = memoryview(data.records)
    for position, header in split(buffer):
        while pending and pending[-1][0] <= header.last_offset:
            aborting.add(pending.pop()[1])
        piece = buffer[position : position + header.size]
        if header.is_control:
            marker = read_marker(piece)
            if marker is not None and not marker.commit:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            values += [record.value for record in records(piece)]
    return values


@pytest.mark.parametrize("v2", [False, True])
def test_committed_readers_stop_at_the_first_open_transaction(
    client: WireClient, topic: str, v2: bool
) -> None:
    create(client, topic)
    append(client, topic, batch(b"plain"))
    first, second = Producer(client, topic, v2=v2), Producer(client, topic, v2=v2)
    first.begin(b"first-1")
    second.begin(b"second-1")
    append(client, topic, batch(b"late"))
    data = read(client, topic, isolation_level=READ_COMMITTED)
    assert [value for _, value in values_of(data.records)] == [b"plain"]
    assert (data.high_watermark, data.last_stable_offset, data.aborted_transactions) == (4, 1, [])
    assert len(values_of(read(client, topic).records)) == 4
    assert (latest(client, topic, committed=True), latest(client, topic, committed=False)) == (1, 4)
    second.end(commit=True)
    assert read(client, topic, 1, isolation_level=READ_COMMITTED, version=FETCH).records == b""
    first.send(b"first-2")
    first.end(commit=False)
    assert wait_until_stable(client, topic) == 7
    assert committed_values(client, topic) == [b"plain", b"second-1", b"late"]
    data = read(client, topic, isolation_level=READ_COMMITTED)
    assert [(a.producer_id, a.first_offset) for a in data.aborted_transactions] == [(first.producer_id, 1)]
    assert read(client, topic).aborted_transactions is None
    for producer in (first, second):
        producer.begin(b"again")
        producer.end(commit=True)
    wait_until_stable(client, topic)
    assert committed_values(client, topic)[3:] == [b"again", b"again"]


def test_a_waiting_reader_of_committed_messages_is_woken_by_the_end_of_the_transaction(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    create(client, topic)
    producer = Producer(client, topic)
    with WireClient(broker.bootstrap) as reader, WireClient(broker.bootstrap) as greedy:
        wait: dict[str, Any] = {"max_wait_ms": 20_000, "isolation_level": READ_COMMITTED}
        reader.post(fetch(topic, 0, **wait), FETCH)
        greedy.post(fetch(topic, 0, min_bytes=5000, **wait), FETCH)
        producer.begin(b"x" * 3000)
        producer.send(b"y" * 3000)
        assert reader.is_silent()
        producer.end(commit=True)
        for waiting in (reader, greedy):
            assert [len(value or b"") for value in visible(only_partition(waiting.read()))] == [3000, 3000]


def test_a_reader_of_committed_messages_waits_for_its_minimum(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    create(client, topic)
    producer = Producer(client, topic)
    with WireClient(broker.bootstrap) as greedy:
        greedy.post(
            fetch(topic, 0, max_wait_ms=20_000, min_bytes=5000, isolation_level=READ_COMMITTED), FETCH
        )
        producer.begin(b"x" * 1000)
        producer.end(commit=True)
        wait_until_stable(client, topic)
        assert greedy.is_silent()
        append(client, topic, batch(b"y" * 5000))
        assert [len(value or b"") for value in visible(only_partition(greedy.read()))] == [1000, 5000]


def test_what_lies_beyond_does_not_count_as_more_to_read(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    create(client, topic, segment_bytes="5000")
    append(client, topic, batch(b"y" * 1000))
    producer = Producer(client, topic)
    producer.begin(b"x" * 3000)
    producer.send(b"x" * 3000)  # in the next segment
    with WireClient(broker.bootstrap) as greedy:
        how: dict[str, Any] = {"max_wait_ms": 20_000, "min_bytes": 5000, "partition_max_bytes": 2000}
        assert len(values_of(only_partition(greedy.call(fetch(topic, 0, **how), FETCH)).records)) == 1
        greedy.post(fetch(topic, 0, isolation_level=READ_COMMITTED, **how), FETCH)
        assert greedy.is_silent()
        producer.end(commit=True)
        assert len(visible(only_partition(greedy.read()))) == 1


def test_what_lies_beyond_is_not_found_by_its_time(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, batch(b"plain", timestamp=1000))
    producer = Producer(client, topic)
    producer.begin(b"open")
    request = list_offsets(topic, 2000)
    assert client.call(request, LIST_OFFSETS).topics[0].partitions[0].offset == 1
    request.isolation_level = READ_COMMITTED
    assert client.call(request, LIST_OFFSETS).topics[0].partitions[0].offset == -1
    producer.end(commit=False)


def test_a_transaction_that_nobody_knows_of_cannot_begin(client: WireClient, topic: str) -> None:
    create(client, topic)
    producer = Producer(client, topic)
    refused = producer.send(b"not added")
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    producer.sequence = 0
    refused = append(client, topic, producer.batch(b"no id"), acks=-1)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert latest(client, topic, committed=False) == 0


def test_batches_behind_the_one_that_joins_the_transaction_stay_behind_it(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    """Adding the partition waits for the disk; what is pipelined after it must not overtake."""
    create(client, topic)
    for round_number in range(3):
        producer = Producer(client, topic, v2=True)
        with WireClient(broker.bootstrap) as pipelined:
            for number in range(5):
                data = producer.batch(b"%d" % number)
                request = produce(topic, data, acks=-1, transactional_id=producer.transactional_id)
                pipelined.post(request, IMPLICIT_ADD)
            answers = [only_partition(pipelined.read()) for _ in range(5)]
        base = round_number * 6
        assert [a.error_code for a in answers] == [ErrorCode.NONE] * 5
        assert [a.base_offset for a in answers] == list(range(base, base + 5))
        producer.end(commit=True)
        wait_until_stable(client, topic)


def test_a_fenced_producer_and_a_late_batch_are_refused(client: WireClient, topic: str) -> None:
    create(client, topic)
    producer = Producer(client, topic, v2=True)
    producer.begin(b"one")
    zombie_epoch = producer.epoch
    producer.end(commit=True)
    wait_until_stable(client, topic)
    producer.epoch, producer.sequence = zombie_epoch, 1
    assert producer.send(b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def write_markers(
    client: WireClient, topic: str, partition: int = 0, version: int = 2, **marker: Any
) -> ErrorCode:
    wanted = WritableTxnMarker(
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])], **marker
    )
    (result,) = client.call(WriteTxnMarkersRequest(markers=[wanted]), version).markers
    assert result.producer_id == wanted.producer_id
    return ErrorCode(result.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", [1, 2])
def test_markers_from_another_coordinator(client: WireClient, topic: str, version: int) -> None:
    create(client, topic)
    end: dict[str, Any] = {"producer_id": 900_000, "transaction_result": True, "version": version}
    assert write_markers(client, topic, producer_epoch=4, coordinator_epoch=7, **end) == ErrorCode.NONE
    assert (
        write_markers(client, topic, producer_epoch=4, coordinator_epoch=6, **end)
        == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )
    assert (
        write_markers(client, topic, producer_epoch=3, coordinator_epoch=7, **end)
        == ErrorCode.INVALID_PRODUCER_EPOCH
    )
    assert (
        write_markers(client, topic, 9, producer_epoch=4, coordinator_epoch=7, **end)
        == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert latest(client, topic, committed=True) == 1


def test_producers_are_described(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, batch(b"plain"))
    producer = Producer(client, topic)
    producer.begin(b"one", b"two")

    def describe(index: int) -> Any:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
        (found,) = client.call(request, 0).topics
        return found.partitions[0]

    (state,) = describe(0).active_producers
    assert (state.producer_id, state.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (state.last_sequence, state.current_txn_start_offset) == (1, 1)
    assert abs(state.last_timestamp - time.time() * 1000) < 60_000
    producer.end(commit=False)
    wait_until_stable(client, topic)
    (state,) = describe(0).active_producers
    assert (state.last_sequence, state.current_txn_start_offset) == (1, -1)
    assert state.coordinator_epoch >= 0
    assert describe(5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_transactions_outlive_the_process(fresh_broker: BrokerProcess, topic: str, stop: str) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, topic, segment_bytes="1048576")
        aborted, opened = Producer(client, topic), Producer(client, topic)
        aborted.begin(b"aborted")
        aborted.end(commit=False)
        wait_until_stable(client, topic)
        opened.begin(b"open")
        append(client, topic, batch(b"plain"), acks=-1)
    getattr(fresh_broker, stop)()
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        data = read(client, topic, isolation_level=READ_COMMITTED)
        assert visible(data) == []
        assert (data.last_stable_offset, data.high_watermark) == (2, 4)
        assert [(a.producer_id, a.first_offset) for a in data.aborted_transactions] == [
            (aborted.producer_id, 0)
        ]
        opened.client = client
        assert opened.send(b"more").error_code == ErrorCode.NONE
        opened.end(commit=True)
        wait_until_stable(client, topic)
        assert committed_values(client, topic) == [b"open", b"plain", b"more"]


def test_the_short_way_of_repeated_requests_keeps_to_the_rules(start_broker: StartBroker, topic: str) -> None:
    running = start_broker("forebay.flush.policy=interval")
    with WireClient(running.bootstrap) as client:
        create(client, topic)
        producer = Producer(client, topic)
        producer.begin(b"0")
        for number in range(1, 10):
            assert producer.send(b"%d" % number).base_offset == number
        producer.end(commit=True)
        wait_until_stable(client, topic)
        refused = producer.send(b"after the end")
        assert refused.error_code == ErrorCode.INVALID_TXN_STATE
        assert committed_values(client, topic) == [b"%d" % number for number in range(10)]
