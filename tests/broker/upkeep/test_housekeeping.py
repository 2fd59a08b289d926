"""Upkeep of many partitions: what is wrong with one of them is no reason to neglect the others."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from forebay.core.partition.retention import (
    NO_LIMIT,
    RetentionPlan,
    RetentionPolicy,
    SegmentSpan,
    plan_retention,
)
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import EARLIEST, WireClient, append, batch, create, offset_at, read_all
from support.faults.faulty_disk import FaultyDisk

SECONDS = 120.0
OFTEN = {"log.retention.check.interval.ms": "20"}
RARELY = {"log.retention.check.interval.ms": "3600000"}
LONG_AGO = 1_600_000_000_000
TOPICS = ("a-good", "bad", "c-good")
SEGMENTED = {"segment_bytes": "1000", "file_delete_delay_ms": "0", "retention_ms": "3600000"}


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def fill(client: WireClient, topic: str, count: int = 12) -> None:
    """Segments that have had their time."""
    for number in range(count):
        assert append(client, topic, batch(bytes(200), timestamp=LONG_AGO + number)).error_code == 0


def is_emptied(client: WireClient, topic: str) -> bool:
    return offset_at(client, topic, EARLIEST) == 12


def failures(broker: LocalBroker) -> int:
    return broker.on_loop(lambda running: running.metrics.background_failures)


def damage_second_batch(segment: Path) -> None:
    size = len(batch(bytes(200)))
    content = bytearray(segment.read_bytes())
    content[size + 16] ^= 0xFF  # its magic
    segment.write_bytes(content)


def test_a_damaged_segment_is_deleted_in_its_time_like_the_others(tmp_path: Path) -> None:
    with local_broker(tmp_path, RARELY) as broker, WireClient(broker.bootstrap) as client:
        for topic in TOPICS:
            create(client, topic, 1, **SEGMENTED)
            fill(client, topic)
    segments = sorted((tmp_path / "bad-0").glob("*.log"))
    assert len(segments) > 3
    damage_second_batch(segments[1])
    with local_broker(tmp_path, OFTEN) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: all(is_emptied(client, topic) for topic in TOPICS))
        assert failures(broker) == 0


def test_a_short_log_is_deleted_when_its_epoch_is_in_a_file(tmp_path: Path) -> None:
    """Until its first segment ends it has no such file: its batches tell the epoch."""
    epochs, first = tmp_path / "t-0" / "leader-epoch-checkpoint", tmp_path / "t-0" / f"{0:020}.log"
    with local_broker(tmp_path, RARELY) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, file_delete_delay_ms="0", retention_ms="3600000")
        fill(client, "t")
    assert first.stat().st_size and not epochs.exists()

    refused = 0

    class Full(FaultyDisk):
        def write_atomic(self, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
            if path == str(epochs):
                nonlocal refused
                refused += 1
                raise OSError(errno.ENOSPC, "full", path)
            super().write_atomic(path, data, sync=sync, sync_name=sync_name)

    with (
        local_broker(tmp_path, OFTEN, make_disk=Full) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        assert eventually(lambda: refused > 1)
        assert not is_emptied(client, "t")
    assert first.exists() and not epochs.exists()
    with local_broker(tmp_path, OFTEN) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: is_emptied(client, "t"))
        assert eventually(lambda: not first.exists())
        assert epochs.read_text() == "0\n1\n0 0\n"
        assert failures(broker) == 0


@pytest.mark.parametrize("index_is_there", [True, False])
def test_a_damaged_segment_that_is_young_stays(tmp_path: Path, index_is_there: bool) -> None:
    """What its time index says is believed while the log cannot say otherwise."""
    now = int(time.time() * 1000)
    with local_broker(tmp_path, RARELY) as broker, WireClient(broker.bootstrap) as client:
        create(client, "bad", 1, **SEGMENTED)
        create(client, "good", 1, **SEGMENTED)
        for number in range(12):
            timestamp = LONG_AGO if number % 3 else now
            assert append(client, "bad", batch(bytes(200), timestamp=timestamp)).error_code == 0
        fill(client, "good")
    first = sorted((tmp_path / "bad-0").glob("*.log"))[0]
    damage_second_batch(first)
    if not index_is_there:
        first.with_suffix(".timeindex").unlink()
    with local_broker(tmp_path, OFTEN) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: is_emptied(client, "good"))
        assert offset_at(client, "bad", EARLIEST) == 0


def test_a_partition_that_the_disk_does_not_give_does_not_hold_up_retention(tmp_path: Path) -> None:
    with local_broker(tmp_path, RARELY) as broker, WireClient(broker.bootstrap) as client:
        for topic in TOPICS:
            create(client, topic, 1, **SEGMENTED)
            fill(client, topic)

    def broken() -> FaultyDisk:
        disk = FaultyDisk()
        disk.break_path("pread", "bad-0/00000000000000000000.timeindex")
        return disk

    with (
        local_broker(tmp_path, OFTEN, make_disk=broken) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        assert eventually(lambda: is_emptied(client, "a-good") and is_emptied(client, "c-good"))
        assert offset_at(client, "bad", EARLIEST) == 0
        assert failures(broker) > 0
        disk = broker.node.disk
        assert isinstance(disk, FaultyDisk)
        disk.repair()
        assert eventually(lambda: is_emptied(client, "bad"))


def test_a_mistake_of_ours_in_one_partition_is_logged_and_the_others_get_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def mistaken(segments: Sequence[SegmentSpan], policy: RetentionPolicy, **facts: int) -> RetentionPlan:
        if policy.retention_ms == NO_LIMIT:
            raise ZeroDivisionError
        return plan_retention(segments, policy, **facts)

    monkeypatch.setattr("forebay.broker.upkeep.retention.plan_retention", mistaken)
    with local_broker(tmp_path, OFTEN) as broker, WireClient(broker.bootstrap) as client:
        create(client, "bad", 1, retention_ms="-1")
        for _ in range(5):
            append(client, "bad", batch(b"stays"))
        create(client, "c-good", 1, **SEGMENTED)
        with caplog.at_level(logging.ERROR):
            fill(client, "c-good")
            assert eventually(lambda: is_emptied(client, "c-good"))
            assert eventually(lambda: failures(broker) > 1)
        told = next(record for record in caplog.records if record.message == "a background task failed")
        facts = told.__dict__
        assert (facts["doing"], facts["partition"]) == ("housekeeping: apply_retention", "bad-0")
        assert len(read_all(client, "bad")) == 5


def test_a_file_that_cannot_be_removed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.broker.upkeep.schedule._REAP_INTERVAL_MS", 20)

    class Stubborn(FaultyDisk):
        refuses = True

        def remove(self, path: str) -> None:
            if self.refuses and "bad-0" in path and path.endswith(".log.deleted"):
                raise PermissionError(path)
            super().remove(path)

    with (
        local_broker(tmp_path, OFTEN, make_disk=Stubborn) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        for topic in ("bad", "c-good"):
            create(client, topic, 1, **SEGMENTED)
            fill(client, topic)
        good, bad = tmp_path / "c-good-0", tmp_path / "bad-0"
        assert eventually(lambda: failures(broker) > 0)
        assert eventually(lambda: is_emptied(client, "c-good") and not any(good.glob("*.deleted")))
        assert any(bad.glob("*.log.deleted"))
        disk = broker.node.disk
        assert isinstance(disk, Stubborn)
        disk.refuses = False
        assert eventually(lambda: not any(bad.glob("*.deleted")))
