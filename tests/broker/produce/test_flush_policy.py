"""When an acknowledgement may leave: acks=all after the sync of the disk, unless the policy is another."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.storage.log.leader_epochs import LEADER_EPOCHS
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    LATEST,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    offset_at,
    only_partition,
    produce,
)
from support.faults.faulty_disk import FaultyDisk
from support.faults.held_disk import HeldDisk
from support.waiting import Patience


def held_disk(local: LocalBroker) -> HeldDisk:
    assert isinstance(local.node.disk, HeldDisk)
    return local.node.disk


QUIET = {"log.flush.interval.ms": "3600000"}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", QUIET, make_disk=HeldDisk) as running:
        yield running


def test_all_waits_for_the_sync_and_one_does_not(local: LocalBroker) -> None:
    disk = held_disk(local)
    with WireClient(local.bootstrap) as client, WireClient(local.bootstrap) as other:
        create(client, "synced")
        with disk.held():
            client.post(produce("synced", batch(b"all"), acks=-1), PRODUCE)
            assert disk.wait_for_sync()
            assert append(other, "synced", batch(b"one"), acks=1).base_offset == 1
            assert client.is_silent()
        assert only_partition(client.read()).base_offset == 0


def test_syncs_are_counted(local: LocalBroker) -> None:
    def flushes() -> int:
        samples = local.on_loop(lambda broker: dict(broker.metrics.samples()))
        return samples["kafka_log_logflushstats_logflush_total"]

    with WireClient(local.bootstrap) as client:
        create(client, "counted")
        before = flushes()
        append(client, "counted", batch(), acks=1)
        assert flushes() == before
        append(client, "counted", batch(), acks=-1)
        assert flushes() == before + 1


def test_waiting_producers_share_the_next_sync(local: LocalBroker) -> None:
    disk = held_disk(local)
    with WireClient(local.bootstrap) as client, contextlib.ExitStack() as stack:
        create(client, "shared")
        producers = [stack.enter_context(WireClient(local.bootstrap)) for _ in range(50)]
        with disk.held():
            client.post(produce("shared", batch(), acks=-1), PRODUCE)
            assert disk.wait_for_sync()
            before = disk.syncs
            for producer in producers:
                producer.post(produce("shared", batch(), acks=-1), PRODUCE)
            with WireClient(local.bootstrap) as watcher:
                patience = Patience("all batches are appended")
                while (end := offset_at(watcher, "shared", LATEST)) < 51:
                    patience.check(end)
        offsets = {only_partition(producer.read()).base_offset for producer in producers}
        assert offsets == set(range(1, 51))
        assert disk.syncs - before <= 2


def test_a_duplicate_is_acknowledged_no_sooner_than_the_first(local: LocalBroker) -> None:
    """The producer sends again because no answer came; the answer to the copy promises the same."""
    disk = held_disk(local)
    data = batch(b"once", producer_id=5, producer_epoch=0, base_sequence=0)
    with WireClient(local.bootstrap) as first, WireClient(local.bootstrap) as second:
        create(first, "again")
        with disk.held():
            first.post(produce("again", data, acks=-1), PRODUCE)
            assert disk.wait_for_sync()
            second.post(produce("again", data, acks=-1), PRODUCE)
            assert second.is_silent()
        assert only_partition(first.read()).base_offset == 0
        assert only_partition(second.read()).base_offset == 0
        assert offset_at(first, "again", LATEST) == 1


def test_the_interval_policy_answers_before_the_sync(tmp_path: Path) -> None:
    settings = {**QUIET, "forebay.flush.policy": "interval"}
    with (
        local_broker(tmp_path / "data", settings, make_disk=HeldDisk) as local,
        WireClient(local.bootstrap) as client,
        held_disk(local).held(),
    ):
        create(client, "early")
        for offset in range(5):
            assert append(client, "early", batch(), acks=-1).base_offset == offset


def test_the_interval_syncs_what_nobody_waited_for(tmp_path: Path) -> None:
    settings = {"log.flush.interval.ms": "50", "forebay.flush.policy": "interval"}
    with (
        local_broker(tmp_path / "data", settings, make_disk=HeldDisk) as local,
        WireClient(local.bootstrap) as client,
        held_disk(local).held(),
    ):
        create(client, "later")
        append(client, "later", batch(), acks=1)
        assert held_disk(local).wait_for_sync()


def test_a_failed_sync_is_never_acknowledged(tmp_path: Path) -> None:
    """What was not made durable may be lost; asking the disk again could not tell."""
    with local_broker(tmp_path / "data", QUIET, make_disk=FaultyDisk) as local:
        disk = local.node.disk
        assert isinstance(disk, FaultyDisk)
        with WireClient(local.bootstrap) as client:
            create(client, "broken")
            create(client, "well")
            assert append(client, "broken", batch(), acks=-1).error_code == ErrorCode.NONE
            disk.break_path("datasync", "broken-0")
            assert append(client, "broken", batch(), acks=-1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            disk.repair()
            assert append(client, "broken", batch(), acks=-1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert append(client, "well", batch(), acks=-1).error_code == ErrorCode.NONE


# -- what nobody waits for ---------------------------------------------------------------------------------


class FullDisk(FaultyDisk):
    """While it is full, not even the list of leader epochs can be written."""

    full = False

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
        if self.full and path.endswith(LEADER_EPOCHS):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().write_atomic(path, data, sync=sync, sync_name=sync_name)


def recovery_point(local: LocalBroker, topic: str) -> int:
    return local.on_loop(lambda broker: broker.partitions.get(topic, 0).log.recovery_point)


def is_synced(local: LocalBroker, topic: str, end_offset: int) -> bool:
    """Whether a log is synced to this offset before long."""
    deadline_s = time.monotonic() + 60
    while recovery_point(local, topic) < end_offset and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return recovery_point(local, topic) == end_offset


def test_what_was_stored_before_the_disk_was_full_is_synced_all_the_same(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path / "data", QUIET, make_disk=FaultyDisk) as local,
        WireClient(local.bootstrap) as client,
    ):
        create(client, "stored")
        assert append(client, "stored", batch(), acks=1).error_code == ErrorCode.NONE
        disk = local.node.disk
        assert isinstance(disk, FaultyDisk)
        disk.free = 0
        assert append(client, "stored", batch(), acks=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        local.on_loop(lambda broker: broker.write_cycle.sync_all())
        assert is_synced(local, "stored", 1)


def test_a_sync_that_could_not_begin_is_made_later(tmp_path: Path) -> None:
    settings = {"log.flush.interval.ms": "50"}
    with (
        local_broker(tmp_path / "data", settings, make_disk=FullDisk) as local,
        WireClient(local.bootstrap) as client,
    ):
        disk = local.node.disk
        assert isinstance(disk, FullDisk)
        create(client, "stored")
        disk.full = True
        large = batch(bytes(100_000))  # a short log has no file of leader epochs that could not be written
        assert append(client, "stored", large, acks=-1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.full = False
        assert is_synced(local, "stored", 1)


def test_what_a_killed_broker_had_not_synced_is_synced_by_the_next(fresh_broker: BrokerProcess) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, "stored")
        assert append(client, "stored", batch(), acks=1).error_code == ErrorCode.NONE
    fresh_broker.kill()
    with local_broker(fresh_broker.data, {"log.flush.interval.ms": "50"}) as local:
        assert is_synced(local, "stored", 1)
