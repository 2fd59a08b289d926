"""Produce 8 and later say which records a batch was refused for, and why (KIP-467)."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import confluent_kafka
import pytest
from kio.serial import entity_reader, entity_writer

from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.kafka_clients import kafka_python
from support.clients.wire_client import WireClient, append, create, only_partition, produce, read_all

HOUR_MS = 3_600_000
NO_KEY = "Compacted topic cannot accept message without key"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with local_broker(tmp_path_factory.mktemp("refused")) as running:
        with WireClient(running.bootstrap) as client:
            create(client, "compacted", 1, cleanup_policy="compact")
            create(client, "plain", 1, message_timestamp_before_max_ms=str(HOUR_MS))
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as connected:
        yield connected


def made(*keys: bytes | None, ages_ms: tuple[int, ...] = (), **how: Any) -> bytes:
    now = int(time.time() * 1000)
    ages = ages_ms or (0,) * len(keys)
    return bytes(
        build_batch(
            [Record(n, now - age, key, b"v") for n, (key, age) in enumerate(zip(keys, ages, strict=True))],
            **how,
        )
    )


def refused(answer: Any) -> dict[int, str]:
    return {each.batch_index: each.batch_index_error_message for each in answer.record_errors}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_without_a_key_are_named(client: WireClient, codec: Codec) -> None:
    answer = append(client, "compacted", made(b"k", None, b"k", None, codec=codec))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert refused(answer) == {1: NO_KEY, 3: NO_KEY}
    assert answer.error_message.startswith("2 of 4 records were refused")
    assert (answer.base_offset, answer.log_append_time_ms) == (-1, -1)


def test_so_they_are_in_a_batch_that_is_examined_in_a_thread(client: WireClient) -> None:
    answer = append(client, "compacted", made(*[b"k"] * 3000, None, b"k"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert refused(answer) == {3000: NO_KEY}


@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_records_of_the_wrong_time_are_named(client: WireClient, topic: str) -> None:
    ages = (0, 2 * HOUR_MS if topic == "plain" else 0, 0, -2 * HOUR_MS)
    answer = append(client, topic, made(b"k", b"k", b"k", b"k", ages_ms=ages))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert list(refused(answer)) == ([1, 3] if topic == "plain" else [3])
    assert "message.timestamp.after.max.ms" in refused(answer)[3]


def test_a_batch_that_is_bad_as_a_whole_names_none(client: WireClient) -> None:
    answer = append(client, "plain", made(b"k")[:-1])
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert refused(answer) == {}
    assert answer.error_message
    good = append(client, "plain", made(b"k"))
    assert (good.error_code, good.record_errors, good.error_message) == (0, [], None)


@pytest.mark.parametrize("version", range(8, 13))
def test_the_answer_byte_for_byte(client: WireClient, version: int) -> None:
    client.post(produce("compacted", made(b"k", None)), version)
    frame = client.read_frame()
    body = frame[5 if version >= 9 else 4 :]  # the correlation id, and tagged fields where there are some
    response = import_module(f"kio.schema.produce.v{version}.response").ProduceResponse
    found = entity_reader(response)(body, 0)[0]
    (partition,) = found.responses[0].partition_responses
    assert partition.error_code.value == ErrorCode.INVALID_RECORD
    assert [(each.batch_index, each.batch_index_error_message) for each in partition.record_errors] == [
        (1, NO_KEY)
    ]
    again = io.BytesIO()
    entity_writer(response)(again, found)
    assert again.getvalue() == body


def test_older_versions_have_the_code_alone(client: WireClient) -> None:
    answer = append(client, "compacted", made(None), version=7)
    assert (answer.error_code, answer.record_errors, answer.error_message) == (
        ErrorCode.INVALID_RECORD,
        [],
        None,
    )


def test_librdkafka_tells_the_culprits_from_the_others(broker: LocalBroker) -> None:
    """It does so where there are several."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 200, "enable.idempotence": False}
    )
    reports: dict[Any, Any] = {}
    for value, key in ((b"first", b"k"), (b"keyless", None), (b"last", b"k"), (b"keyless too", None)):
        producer.produce(
            "compacted",
            value,
            key,
            on_delivery=lambda error, message: reports.update({message.value(): error}),
        )
    assert producer.flush(20) == 0
    culprit, other = (
        confluent_kafka.KafkaError.INVALID_RECORD,
        confluent_kafka.KafkaError._INVALID_DIFFERENT_RECORD,
    )
    assert {value: error.code() for value, error in reports.items()} == {
        b"first": other,
        b"keyless": culprit,
        b"last": other,
        b"keyless too": culprit,
    }


def test_kafka_python_tells_the_culprit_from_the_others(broker: LocalBroker, client: WireClient) -> None:
    producer = kafka_python.KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=200, retries=0)
    sent = [producer.send("compacted", value, key) for value, key in ((b"first", b"k"), (b"keyless", None))]
    errors = []
    for future in sent:
        with pytest.raises(kafka_python.errors.KafkaError) as caught:
            future.get(20)
        errors.append(str(caught.value))
    producer.close(5)
    assert NO_KEY in errors[1]
    assert NO_KEY not in errors[0]
    assert read_all(client, "compacted") == []


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("age_ms", [2 * HOUR_MS, -2 * HOUR_MS])
def test_what_a_broker_moves_may_have_the_time_of_another_clock(
    client: WireClient, age_ms: int, codec: Codec
) -> None:
    data = made(b"k", b"k", ages_ms=(age_ms, age_ms), codec=codec)
    assert append(client, "plain", data).error_code == ErrorCode.INVALID_TIMESTAMP
    for _ in range(2):  # the second one is like the one before, and takes the fast path
        client.socket.sendall(client.frame(produce("plain", data), 9, client_id="forebay-broker-2.1.1"))
        assert only_partition(client.read()).error_code == ErrorCode.NONE
    assert append(client, "plain", data).error_code == ErrorCode.INVALID_TIMESTAMP
