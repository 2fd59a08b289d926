"""Topics that read the records of what they store: what they refuse, and who waits while they read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from forebay.core.partition.batch_rules import EXAMINED_RECORDS_MAX
from forebay.errors import ErrorCode
from forebay.wire.batch import CONTROL, DELETE_HORIZON, HEADER_SIZE, assemble, build_batch, read_header, split
from forebay.wire.compression import Codec, compress
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.metadata import MetadataRequest
from forebay.wire.messages.produce import PartitionProduceData
from forebay.wire.records import Record
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    PRODUCE,
    WireClient,
    append,
    create,
    only_partition,
    produce,
    read,
    read_all,
)
from support.faults.faulty_disk import FaultyDisk
from support.faults.held_threads import HeldThreads

COMPACTED = {"cleanup_policy": "compact"}
MANY = 5000
FEW = 2


@pytest.fixture
def threads() -> HeldThreads:
    return HeldThreads("forebay-examine")


@pytest.fixture
def broker(tmp_path: Path, threads: HeldThreads) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", threads=threads, make_disk=FaultyDisk) as running:
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as connected:
        yield connected


def now() -> int:
    return int(time.time() * 1000)


def made(count: int = FEW, value: bytes = b"v", key: bytes | None = b"k", **how: Any) -> bytes:
    """`count` records that are told apart by their values."""
    return bytes(build_batch([Record(n, now(), key, b"%s%d" % (value, n)) for n in range(count)], **how))


def changed(batch: bytes, **fields: Any) -> bytes:
    return bytes(assemble(read_header(batch)._replace(**fields), batch[HEADER_SIZE:]))


def values(count: int, value: bytes = b"v") -> list[bytes]:
    return [b"%s%d" % (value, n) for n in range(count)]


def stored(client: WireClient, topic: str, partition: int = 0) -> list[bytes | None]:
    return [value for _, value in read_all(client, topic, partition)]


# -- what is refused ---------------------------------------------------------------------------------------


def lying_batches() -> list[Any]:
    far = changed(bytes(build_batch([Record(100, now(), b"k", b"v")])), last_offset_delta=0)
    record = bytes(build_batch([Record(0, now(), b"k", b"")])[HEADER_SIZE:])
    millions = read_header(made())._replace(
        record_count=4_000_000, last_offset_delta=4_000_000 - 1, attributes=Codec.ZSTD
    )
    invalid, timestamp = ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP
    return [
        pytest.param(far, invalid, id="an offset beyond the batch"),
        pytest.param(
            bytes(assemble(millions, compress(Codec.ZSTD, record * 4_000_000))), invalid, id="millions"
        ),
        pytest.param(
            changed(made(MANY), record_count=MANY - 1, last_offset_delta=MANY - 2), invalid, id="fewer"
        ),
        pytest.param(made(key=None), invalid, id="no key"),
        pytest.param(made(MANY, key=None, codec=Codec.ZSTD), invalid, id="no key in a large batch"),
        pytest.param(changed(made(), base_timestamp=2**63 - 1), timestamp, id="a time beyond 64 bits"),
    ]


@pytest.mark.parametrize(("batch", "code"), lying_batches())
def test_a_compacted_topic_refuses_what_it_could_not_compact(
    client: WireClient, batch: bytes, code: ErrorCode
) -> None:
    create(client, "t", 1, **COMPACTED)
    assert append(client, "t", made()).error_code == ErrorCode.NONE
    assert append(client, "t", batch).error_code == code
    assert append(client, "t", made()).base_offset == FEW


def test_what_every_topic_refuses_by_the_header_alone(client: WireClient) -> None:
    create(client, "plain")
    lies: dict[ErrorCode, list[dict[str, int]]] = {
        ErrorCode.INVALID_RECORD: [
            {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
            {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2, "attributes": Codec.ZSTD},
            {"last_offset_delta": 100},
            {"attributes": CONTROL},
            {"attributes": DELETE_HORIZON},
        ],
        ErrorCode.INVALID_TIMESTAMP: [{"base_timestamp": 2**63 - 1}, {"base_timestamp": -(2**63)}],
    }
    for code, fields in lies.items():
        assert [append(client, "plain", changed(made(), **each)).error_code for each in fields] == [
            code
        ] * len(fields)
    assert append(client, "plain", made()).base_offset == 0


def test_the_largest_batch_that_is_examined_is_stored(client: WireClient) -> None:
    create(client, "t", 1, **COMPACTED)
    count = EXAMINED_RECORDS_MAX // 20  # as many as a test should take the time for
    batch = made(count, codec=Codec.ZSTD)
    assert append(client, "t", batch).base_offset == 0
    assert append(client, "t", made()).base_offset == count


# -- nobody waits ------------------------------------------------------------------------------------------


def test_others_are_served_while_a_batch_is_examined(
    broker: LocalBroker, client: WireClient, threads: HeldThreads
) -> None:
    create(client, "t", 2, **COMPACTED)
    create(client, "plain")
    with threads.held(), WireClient(broker.bootstrap) as other:
        client.post(produce("t", made(MANY), acks=-1), PRODUCE)
        assert threads.has_work()
        # This goes through the buffer that the batch came in.
        assert append(other, "plain", made(MANY, b"x")).base_offset == 0
        assert append(other, "t", made(FEW, b"small"), partition=1).base_offset == 0
        assert other.call(MetadataRequest(topics=[]), 9).error_code == ErrorCode.NONE
        assert stored(other, "t") == []
    assert only_partition(client.read()).base_offset == 0
    assert stored(client, "t") == values(MANY)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batches_of_one_producer_stay_in_order(
    client: WireClient, threads: HeldThreads, codec: Codec
) -> None:
    """The first is examined in a thread, the second need not be, the third repeats the first."""
    create(client, "t", 1, **COMPACTED)

    def numbered(count: int, value: bytes, sequence: int) -> bytes:
        return made(count, value, producer_id=7, producer_epoch=0, base_sequence=sequence, codec=codec)

    first, second = numbered(MANY, b"a", 0), numbered(FEW, b"b", MANY)
    with threads.held():
        frames = [client.frame(produce("t", each, acks=-1), PRODUCE) for each in (first, second, first)]
        client.socket.sendall(b"".join(frames))
        assert threads.has_work()
    answers = [only_partition(client.read()) for _ in frames]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, MANY), (0, 0)]
    assert stored(client, "t") == values(MANY, b"a") + values(FEW, b"b")


def test_repeated_requests_take_turns_with_large_ones(client: WireClient) -> None:
    """Repeated requests take the fast path; a large batch among them is not lost there."""
    create(client, "t", 1, **COMPACTED)
    sizes = [FEW, FEW, FEW, MANY, FEW, MANY, MANY, FEW]
    client.socket.sendall(
        b"".join(
            client.frame(produce("t", made(size, b"%d-" % n), acks=-1), PRODUCE)
            for n, size in enumerate(sizes)
        )
    )
    answers = [only_partition(client.read()) for _ in sizes]
    assert [answer.base_offset for answer in answers] == [sum(sizes[:n]) for n in range(len(sizes))]
    assert stored(client, "t") == [v for n, size in enumerate(sizes) for v in values(size, b"%d-" % n)]


def test_who_waits_for_no_answer_keeps_its_order_too(client: WireClient, threads: HeldThreads) -> None:
    create(client, "t", 1, **COMPACTED)
    with threads.held():
        client.post(produce("t", made(MANY, b"a"), acks=0), PRODUCE)
        client.post(produce("t", made(FEW, b"b"), acks=0), PRODUCE)
        client.post(produce("t", made(FEW, b"c"), acks=1), PRODUCE)
        assert threads.has_work()
    assert only_partition(client.read()).base_offset == MANY + FEW
    assert stored(client, "t") == values(MANY, b"a") + values(FEW, b"b") + values(FEW, b"c")


def test_who_waits_for_no_answer_learns_of_a_refusal_by_the_end_of_the_connection(
    broker: LocalBroker, client: WireClient
) -> None:
    create(client, "t", 1, **COMPACTED)
    with WireClient(broker.bootstrap) as careless:
        careless.post(produce("t", made(MANY, key=None), acks=0), PRODUCE)
        assert careless.is_closed()
    assert stored(client, "t") == []


def test_each_partition_of_a_request_gets_its_own_answer(client: WireClient) -> None:
    create(client, "t", 6, **COMPACTED)
    batches: list[bytes | None] = [
        made(FEW, b"a"),
        made(MANY, key=None),
        made(MANY, b"c"),
        None,
        made(FEW, key=None),
        made(MANY, b"f"),
    ]
    request = produce("t", None, acks=-1)
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=n, records=None if batch is None else memoryview(batch))
        for n, batch in enumerate(batches)
    ]
    (topic,) = client.call(request, PRODUCE).responses
    invalid = ErrorCode.INVALID_RECORD
    assert [(each.index, each.error_code) for each in topic.partition_responses] == [
        (0, 0),
        (1, invalid),
        (2, 0),
        (3, invalid),
        (4, invalid),
        (5, 0),
    ]
    assert [len(stored(client, "t", n)) for n in range(6)] == [FEW, 0, MANY, 0, 0, MANY]


@pytest.mark.parametrize("which", ["small", "large"])
def test_a_write_that_fails_is_told_whenever_its_batch_was_appended(
    broker: LocalBroker, client: WireClient, threads: HeldThreads, which: str
) -> None:
    create(client, "small", 1, **COMPACTED)
    create(client, "large", 1, **COMPACTED)
    disk = broker.node.disk
    assert isinstance(disk, FaultyDisk)
    disk.break_path("append", f"{which}-0/")
    request = produce("small", made(), acks=-1)
    request.topic_data.append(produce("large", made(MANY)).topic_data[0])
    found = {topic.name: topic.partition_responses[0] for topic in client.call(request, PRODUCE).responses}
    other = "large" if which == "small" else "small"
    assert found[which].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (found[other].error_code, found[other].base_offset) == (ErrorCode.NONE, 0)


def test_settings_that_change_meanwhile_count(
    client: WireClient, threads: HeldThreads, broker: LocalBroker
) -> None:
    create(client, "t", compression_type="gzip")
    with threads.held(), WireClient(broker.bootstrap) as admin:
        client.post(produce("t", made(MANY, key=None), acks=-1), PRODUCE)
        assert threads.has_work()
        compact = AlterableConfig(name="cleanup.policy", config_operation=0, value="compact")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[compact])
        (answer,) = admin.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == ErrorCode.NONE
    assert only_partition(client.read()).error_code == ErrorCode.INVALID_RECORD
    assert stored(client, "t") == []


def test_a_topic_with_its_own_compression_packs_large_batches_in_the_thread(
    broker: LocalBroker, client: WireClient, threads: HeldThreads
) -> None:
    create(client, "t", compression_type="gzip")
    with threads.held():
        client.post(produce("t", made(MANY, codec=Codec.ZSTD), acks=-1), PRODUCE)
        assert threads.has_work()
    assert only_partition(client.read()).base_offset == 0
    assert stored(client, "t") == values(MANY)
    data = bytes(read(client, "t").records)
    assert {header.codec for _, header in split(data)} == {Codec.GZIP}


def test_a_broker_stops_while_it_examines(tmp_path: Path, threads: HeldThreads) -> None:
    with local_broker(tmp_path / "other", threads=threads) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED)
        with threads.held():
            client.post(produce("t", made(MANY), acks=-1), PRODUCE)
            assert threads.has_work()
            broker.begin_to_stop()
            assert client.is_closed()
    with local_broker(tmp_path / "other") as broker, WireClient(broker.bootstrap) as client:
        assert stored(client, "t") == []


@pytest.mark.parametrize("transactional", [False, True])
def test_a_real_producer_fills_a_compacted_topic_in_large_batches(
    broker: LocalBroker, client: WireClient, transactional: bool
) -> None:
    create(client, "t", 1, **COMPACTED)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 50,
        "compression.type": "zstd",
        "queue.buffering.max.messages": 100_000,
    }
    if transactional:
        settings |= {"transactional.id": "filler", "metadata.recovery.strategy": "none"}
    producer = confluent_kafka.Producer(settings)
    if transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    for value in values(20_000):
        producer.produce("t", value, b"k")
    assert producer.flush(30) == 0
    if transactional:
        producer.commit_transaction(30)
    found = stored(client, "t")
    assert found[:20_000] == values(20_000)
