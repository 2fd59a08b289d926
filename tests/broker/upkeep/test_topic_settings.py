"""What a topic's settings do to its messages: retention, the broker's time, compression, compacted topics."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic

from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch, records, split
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.brokers.local_broker import local_broker
from support.clients.config_calls import increment
from support.clients.kafka_clients import confluent_admin
from support.clients.wire_client import (
    EARLIEST,
    LATEST,
    WireClient,
    append,
    batch,
    create,
    offset_at,
    read,
    read_all,
    values_of,
)
from support.faults.faulty_disk import FaultyDisk

SECONDS = 120.0
TOPIC, SET = 2, 0
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def tidy(start_broker: StartBroker) -> Iterator[tuple[BrokerProcess, WireClient]]:
    """A broker that looks at retention all the time."""
    broker = start_broker("log.retention.check.interval.ms=50")
    with WireClient(broker.bootstrap) as client:
        yield broker, client


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def now_ms() -> int:
    return int(time.time() * 1000)


# -- retention ---------------------------------------------------------------------------------------------


def _size_on_disk(directory: Path) -> int:
    size = 0
    for path in directory.glob("*.log*"):
        with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
            size += path.stat().st_size
    return size


def test_retention_by_size(tidy: tuple[BrokerProcess, WireClient]) -> None:
    broker, client = tidy
    create(client, "sized", segment_bytes="10000", retention_bytes="30000", file_delete_delay_ms="0")
    for _ in range(60):
        append(client, "sized", batch(bytes(2000)))
    size = len(batch(bytes(2000)))
    assert eventually(lambda: (60 - offset_at(client, "sized", EARLIEST)) * size <= 40_000)
    start = offset_at(client, "sized", EARLIEST)
    assert (60 - start) * size >= 30_000  # no more is deleted than has to be
    assert [offset for offset, _ in read_all(client, "sized")] == list(range(start, 60))
    assert read(client, "sized", start - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert append(client, "sized", batch(b"next")).base_offset == 60
    directory = broker.data / "sized-0"
    assert eventually(lambda: _size_on_disk(directory) <= 45_000)


def test_retention_by_time(tidy: tuple[BrokerProcess, WireClient]) -> None:
    _, client = tidy
    create(client, "timed", segment_bytes="2500", retention_ms=str(DAY_MS))  # a batch each
    for _ in range(10):
        append(client, "timed", batch(bytes(2000), timestamp=now_ms() - 2 * DAY_MS))
    for _ in range(4):
        append(client, "timed", batch(bytes(2000)))
    assert eventually(lambda: offset_at(client, "timed", EARLIEST) == 10)
    assert [offset for offset, _ in read_all(client, "timed")] == [10, 11, 12, 13]


def test_retention_empties_even_the_last_segment(tidy: tuple[BrokerProcess, WireClient]) -> None:
    """Old messages go though nothing new comes; the offsets go on where they were."""
    broker, client = tidy
    create(client, "emptied", retention_ms="1000")
    for _ in range(3):
        append(client, "emptied", batch(b"old", timestamp=now_ms() - 10_000))
    assert eventually(lambda: offset_at(client, "emptied", EARLIEST) == 3)
    assert offset_at(client, "emptied", LATEST) == 3
    broker.kill()
    broker.restart()
    with WireClient(broker.bootstrap) as again:
        assert append(again, "emptied", batch(b"new")).base_offset == 3
        assert read_all(again, "emptied") == [(3, b"new")]


def test_without_limits_nothing_goes(tidy: tuple[BrokerProcess, WireClient]) -> None:
    _, client = tidy
    create(client, "kept", segment_bytes="5000", retention_ms="-1")
    create(client, "gone", segment_bytes="5000", retention_ms="1000")
    for name in ("kept", "gone"):
        for _ in range(10):
            append(client, name, batch(bytes(2000), timestamp=now_ms() - 1000 * DAY_MS))
    assert eventually(lambda: offset_at(client, "gone", EARLIEST) == 10)
    assert offset_at(client, "kept", EARLIEST) == 0


# -- timestamps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_the_time_of_the_append_replaces_the_producers(client: WireClient, topic: str, codec: int) -> None:
    create(client, topic, message_timestamp_type="LogAppendTime")
    before = now_ms()
    answer = append(client, topic, batch(b"a", b"b", timestamp=12345, codec=codec))
    assert before <= answer.log_append_time_ms <= now_ms()
    data = read(client, topic).records
    ((_, header),) = split(data)
    assert header.is_log_append_time
    assert {record.timestamp for record in records(data)} == {answer.log_append_time_ms}
    assert values_of(data) == [(0, b"a"), (1, b"b")]
    assert append(client, topic, batch(timestamp=2**50)).error_code == ErrorCode.NONE  # whatever it says


@pytest.mark.parametrize(
    "bounds",
    [
        {"message_timestamp_before_max_ms": "600000", "message_timestamp_after_max_ms": "600000"},
        {"message_timestamp_difference_max_ms": "600000"},
    ],
)
def test_timestamps_out_of_bounds_are_refused(client: WireClient, topic: str, bounds: dict[str, str]) -> None:
    create(client, topic, 1, **bounds)
    for shift, code in [
        (0, ErrorCode.NONE),
        (-500_000, ErrorCode.NONE),
        (500_000, ErrorCode.NONE),
        (-DAY_MS, ErrorCode.INVALID_TIMESTAMP),
        (DAY_MS, ErrorCode.INVALID_TIMESTAMP),
    ]:
        assert append(client, topic, batch(timestamp=now_ms() + shift)).error_code == code


# -- compression -------------------------------------------------------------------------------------------

TYPES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@pytest.mark.parametrize("compression_type", TYPES)
def test_the_topics_codec_replaces_the_producers(
    client: WireClient, topic: str, compression_type: str
) -> None:
    create(client, topic, compression_type=compression_type)
    for number, codec in enumerate(Codec):
        answer = append(client, topic, batch(b"%d" % number, b"x" * 1000, codec=codec))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number * 2)
    data = read(client, topic).records
    assert {header.codec for _, header in split(data)} == {TYPES[compression_type]}
    assert [value for _, value in values_of(data)][::2] == [b"%d" % n for n in range(len(Codec))]


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -100, 19)])
def test_the_level_of_compression_is_the_topics(
    client: WireClient, topic: str, codec: str, low: int, high: int
) -> None:
    chance = random.Random(1)
    words = [f"{chance.getrandbits(40):x}" for _ in range(97)]
    sent = batch(" ".join(chance.choices(words, k=9_000)).encode())
    sizes = []
    for level in (low, high):
        settings = {"compression_type": codec, f"compression_{codec}_level": str(level)}
        create(client, f"{topic}{level}", 1, **settings)
        append(client, f"{topic}{level}", sent)
        stored = read(client, f"{topic}{level}").records
        assert values_of(stored) == values_of(sent)
        sizes.append(len(stored))
    assert sizes[1] < sizes[0] * 0.95


PROVISIONED = {
    "flush.messages": "1000",
    "flush.ms": "1000",
    "preallocate": "true",
    "segment.jitter.ms": "1000",
    "compression.gzip.level": "9",
    "compression.lz4.level": "17",
    "compression.zstd.level": "22",
    "remote.storage.enable": "false",
    "local.retention.ms": "-2",
    "local.retention.bytes": "-2",
    "message.downconversion.enable": "false",
    "message.timestamp.difference.max.ms": "86400000",
    "message.format.version": "2.8-IV1",
}
"""What provisioning scripts made for any Kafka since 2.8 set."""


def test_scripts_made_for_kafka_provision_their_topics(broker: BrokerProcess, topic: str) -> None:
    admin = confluent_admin(broker.bootstrap)
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config=PROVISIONED)
    admin.create_topics([new])[topic].result(SECONDS)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result(SECONDS)
    assert {name: described[name].value for name in PROVISIONED} == PROVISIONED


def test_remote_storage_is_refused_as_kafka_does_without_a_tier(broker: BrokerProcess, topic: str) -> None:
    admin = confluent_admin(broker.bootstrap)
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config={"remote.storage.enable": "true"})
    with pytest.raises(KafkaException, match="Tiered Storage functionality is disabled in the broker"):
        admin.create_topics([new])[topic].result(SECONDS)


def test_the_producers_codec_is_kept_by_default(client: WireClient, topic: str) -> None:
    create(client, topic)
    sent = [batch(b"x" * 1000, codec=codec) for codec in Codec]
    for data in sent:
        append(client, topic, data)
    stored = read(client, topic).records
    assert [header.codec for _, header in split(stored)] == list(Codec)
    assert len(stored) == sum(map(len, sent))


def test_what_cannot_be_unpacked_is_refused_where_it_must_be(client: WireClient, topic: str) -> None:
    """Only a topic that stores under another codec looks inside; a bomb must not get far there."""
    create(client, topic, compression_type="gzip", max_message_bytes="10000000")
    bomb = batch(bytes(200 << 20), codec=Codec.ZSTD)
    assert len(bomb) < 100_000
    assert append(client, topic, bomb).error_code == ErrorCode.INVALID_RECORD
    assert append(client, topic, batch(b"fine", codec=Codec.ZSTD)).base_offset == 0


def test_a_compacted_topic_wants_keys(client: WireClient, topic: str) -> None:
    create(client, topic, cleanup_policy="compact")
    keyless = bytes(build_batch([Record(0, now_ms(), None, b"value")]))
    assert append(client, topic, keyless).error_code == ErrorCode.INVALID_RECORD
    assert append(client, topic, batch(b"with key")).base_offset == 0


def test_settings_hold_after_a_restart(fresh_broker: BrokerProcess, tmp_path: Path) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, "set", compression_type="gzip", message_timestamp_type="LogAppendTime")
    fresh_broker.kill()
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        assert append(client, "set", batch(b"x" * 500, timestamp=1)).log_append_time_ms > 1
        ((_, header),) = split(read(client, "set").records)
        assert (header.codec, header.is_log_append_time) == (Codec.GZIP, True)


# -- trouble -----------------------------------------------------------------------------------------------


def test_settings_change_while_the_disk_gives_nothing(tmp_path: Path) -> None:
    """One log that cannot be read is no reason to end, nor to leave the others with the old settings."""
    with (
        local_broker(tmp_path / "data", make_disk=FaultyDisk) as local,
        WireClient(local.bootstrap) as client,
    ):
        for topic in ("unreadable", "well"):
            create(client, topic)
            append(client, topic, batch())
        disk = local.node.disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path("pread", "unreadable-0")
        for topic in ("unreadable", "well"):
            change = increment(client, TOPIC, topic, ("segment.bytes", SET, "4096"))
            assert change.error_code == ErrorCode.NONE
        assert eventually(
            lambda: local.on_loop(
                lambda broker: all(each.log.config.segment_bytes == 4096 for each in broker.partitions.all())
            )
        )
        assert append(client, "well", batch()).error_code == ErrorCode.NONE
