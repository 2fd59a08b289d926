"""Batches that lie in a log already and make no sense: passed over, counted and named, once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.node import Node
from forebay.broker.partition.own_appends import append_own
from forebay.wire.batch import HEADER_SIZE, assemble, build_batch, read_header
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    EARLIEST,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    WireClient,
    append,
    create,
    list_offsets,
)

SECONDS = 120.0
EAGER = {"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0"}
COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "2000", "file_delete_delay_ms": "0"}
THEN = 1_700_000_000_000


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def far_offset() -> bytes:
    """One record of the key a, at an offset beyond its batch and beyond the good ones that follow."""
    return lying(build_batch([Record(100, THEN, b"a", b"bad")]), last_offset_delta=0, max_timestamp=THEN + 1)


def far_time() -> bytes:
    """Its second record has a time of more than 64 bits."""
    batch = build_batch([Record(0, 0, b"a", b"bad"), Record(1, 50, b"a", b"bad")])
    return lying(batch, base_timestamp=2**63 - 10, max_timestamp=THEN + 1)


def garbage() -> bytes:
    return lying(build_batch([Record(0, THEN, b"a", b"bad")]), attributes=Codec.ZSTD, max_timestamp=THEN + 1)


def lying(batch: bytearray, **fields: Any) -> bytes:
    return bytes(assemble(read_header(batch)._replace(**fields), bytes(batch[HEADER_SIZE:])))


LIES = [far_offset, far_time, garbage]


def put_unchecked(broker: LocalBroker, topic: str, batch: bytes) -> int:
    """Append as a broker did that checked less; the offset."""

    def act(running: Node) -> int:
        partition = running.partitions.get(topic, 0)
        offset = append_own(partition, memoryview(bytearray(batch)))
        running.write_cycle.queued(partition, len(batch))
        running.write_cycle.finish()
        return offset

    return broker.on_loop(act)


def put(client: WireClient, topic: str, key: bytes, value: bytes, timestamp: int = THEN) -> int:
    answer = append(client, topic, bytes(build_batch([Record(0, timestamp, key, value)])))
    assert answer.error_code == 0, answer.error_message
    offset: int = answer.base_offset
    return offset


def roll(broker: LocalBroker, topic: str) -> int:
    def act(running: Node) -> int:
        log = running.partitions.get(topic, 0).log
        log.roll()
        return log.end_offset

    return broker.on_loop(act)


def wait_until_clean(broker: LocalBroker, topic: str) -> None:
    end = roll(broker, topic)

    def is_clean(running: Node) -> bool:
        return running.data.first_dirty_offset(topic, 0) >= end and running.compactor.cleaning is None

    assert eventually(lambda: broker.on_loop(is_clean))


def metric(broker: LocalBroker, name: str) -> int:
    return broker.on_loop(lambda running: dict(running.metrics.samples())[name])


def batches(broker: LocalBroker, topic: str) -> dict[int, bytes]:
    """The bytes of every batch that has records, by its offset, without what the broker owns of them."""

    def act(running: Node) -> dict[int, bytes]:
        scan = running.partitions.get(topic, 0).log.files.scan(0)
        return {header.base_offset: bytes(batch[16:]) for batch, header in scan if header.record_count}

    return broker.on_loop(act)


@pytest.mark.parametrize("lie", LIES)
def test_compaction_keeps_it_believes_nothing_of_it_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lie: Callable[[], bytes]
) -> None:
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        for topic in ("bad", "good"):
            create(client, topic, 1, **COMPACTED)
        put(client, "bad", b"a", b"1")
        at = put_unchecked(broker, "bad", lie())
        newer = [put(client, "bad", b"a", b"2"), put(client, "bad", b"b", b"1")]
        with caplog.at_level(logging.WARNING):
            wait_until_clean(broker, "bad")
            kept = batches(broker, "bad")
            assert sorted(kept) == [at, *newer]
            assert kept[at] == lie()[16:]
            # Again, with the bad batch in the clean part of the log.
            put(client, "bad", b"b", b"2")
            wait_until_clean(broker, "bad")
        assert batches(broker, "bad")[at] == lie()[16:]
        assert metric(broker, "forebay_unreadable_batches_total") == 1
        assert [r.__dict__["offset"] for r in caplog.records if "cannot be read" in r.message] == [at]
        cleanings = metric(broker, "forebay_logs_compacted_total")
        put(client, "good", b"a", b"1")
        put(client, "good", b"a", b"2")
        wait_until_clean(broker, "good")
        assert metric(broker, "forebay_logs_compacted_total") == cleanings + 1


@pytest.mark.parametrize("lie", LIES)
def test_a_lookup_by_time_passes_over_it(tmp_path: Path, lie: Callable[[], bytes]) -> None:
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t")
        before = put(client, "t", b"a", b"1", THEN - 1000)
        put_unchecked(broker, "t", lie())
        after = put(client, "t", b"a", b"2", THEN)
        put_unchecked(broker, "t", lie())

        def ask(timestamp: int) -> tuple[int, int, int]:
            (topic,) = client.call(list_offsets("t", timestamp), LIST_OFFSETS).topics
            found = topic.partitions[0]
            return found.error_code, found.timestamp, found.offset

        for _ in range(3):
            assert ask(THEN - 1000) == (0, THEN - 1000, before)
            assert ask(THEN) == (0, THEN, after)
            assert ask(THEN + 1) == (0, -1, -1)
            assert ask(MAX_TIMESTAMP) == (0, THEN, after)
            assert ask(EARLIEST) == (0, -1, 0)
        assert metric(broker, "forebay_unreadable_batches_total") == 2
