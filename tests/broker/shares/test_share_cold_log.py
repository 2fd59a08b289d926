"""Share groups on a log that is not in memory: the event loop never waits for the device."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.batch import HEADER_SIZE
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.share_member import ShareMember, ack, configure, held, join, parts
from support.clients.wire_client import WireClient, append, batch, create

TOPIC = "frozen"
MESSAGES = 20
SECONDS = 20.0
SLOW_S = 0.3


class FrozenFile(RealFile):
    __slots__ = ("_frozen",)

    def __init__(self, disk: FrozenDisk, path: str) -> None:
        super().__init__(disk, path)
        self._frozen = disk

    def cached(self, position: int, length: int) -> bool:
        return super().cached(position, length) and not self._frozen.is_cold

    def pread(self, length: int, position: int) -> bytes:
        if self._frozen.is_cold and TOPIC in self.path:
            self._frozen.readers.append(threading.get_ident())
        return super().pread(length, position)


class FrozenDisk(RealDisk):
    """Nothing is in the page cache while it is cold; it knows which threads have read the topic then."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cold = False
        self.readers: list[int] = []
        self.loop_name = ""
        self.slow_s = SLOW_S

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> FrozenFile:
        if create:
            super().open(path, create=True)
        return FrozenFile(self, path)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", make_disk=FrozenDisk) as running:
        yield running


def test_a_thread_reads_what_is_not_in_memory_before_the_loop_looks_at_it(local: LocalBroker) -> None:
    disk = local.node.disk
    assert isinstance(disk, FrozenDisk)
    with WireClient(local.bootstrap) as client:
        topic_id = create(client, TOPIC)
        configure(client, TOPIC)
        join(client, TOPIC, TOPIC)
        for n in range(MESSAGES):
            append(client, TOPIC, batch(b"%d" % n))
        disk.is_cold = True
        taken = ShareMember(client, TOPIC, topic_id).take()
        disk.is_cold = False
    assert [each.offset for each in taken] == [*range(MESSAGES)]
    loop = local.on_loop(lambda _: threading.get_ident())
    assert disk.readers
    assert disk.readers[0] != loop


class SlowFile(FrozenFile):
    __slots__ = ()

    def pread(self, length: int, position: int) -> bytes:
        if self._frozen.is_cold and TOPIC in self.path:
            time.sleep(self._frozen.slow_s)
        return super().pread(length, position)


class SlowDisk(FrozenDisk):
    def open(self, path: str, *, create: bool = False, absent: bool = False) -> FrozenFile:
        super().open(path, create=create, absent=absent)
        return SlowFile(self, path)


def test_a_disk_that_takes_long_uses_up_no_deliveries(tmp_path: Path) -> None:
    """Only share coordinators are not waited for after that time."""
    settings = {"share.coordinator.write.timeout.ms": "100"}
    with local_broker(tmp_path / "data", settings, make_disk=SlowDisk) as local:
        disk = local.node.disk
        assert isinstance(disk, SlowDisk)
        with WireClient(local.bootstrap) as client:
            topic_id = create(client, TOPIC)
            configure(client, TOPIC)
            join(client, TOPIC, TOPIC)
            append(client, TOPIC, batch(b"v"))
            disk.is_cold = True
            (taken,) = ShareMember(client, TOPIC, topic_id).take()
            disk.is_cold = False
    assert (taken.value, taken.deliveries) == (b"v", 1)


def test_a_disk_that_is_slower_than_the_lock_uses_up_no_deliveries(tmp_path: Path) -> None:
    """What nobody got is not given up, however often it took too long."""
    settings = {"group.share.delivery.count.limit": "2", "group.share.record.lock.duration.ms": "1000"}
    with local_broker(tmp_path / "data", settings, make_disk=SlowDisk) as local:
        disk = local.node.disk
        assert isinstance(disk, SlowDisk)
        with WireClient(local.bootstrap) as client:
            topic_id = create(client, TOPIC)
            configure(client, TOPIC)
            join(client, TOPIC, TOPIC)
            append(client, TOPIC, batch(b"v"))
            member = ShareMember(client, TOPIC, topic_id)
            disk.slow_s, disk.is_cold = 1.5, True
            for _ in range(4):
                assert held(member.fetch(wait_ms=2_500)) == []
            disk.is_cold = False
            (taken,) = member.take()
            assert (taken.value, taken.deliveries) == (b"v", 1)
            assert member.acknowledge(ack(0)) == ErrorCode.NONE, "its lock has just begun"


class FailingFile(FrozenFile):
    __slots__ = ()

    def pread(self, length: int, position: int) -> bytes:
        is_loop = threading.current_thread().name == self._frozen.loop_name
        if self._frozen.is_cold and TOPIC in self.path and not is_loop:
            raise OSError(errno.EIO, "the device cannot be read", self.path)
        return super().pread(length, position)


class FailingDisk(FrozenDisk):
    """While it is cold, threads can read nothing. The loop can: headers are on other pages than records."""

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> FrozenFile:
        super().open(path, create=create, absent=absent)
        return FailingFile(self, path)


def test_what_the_disk_does_not_give_for_a_while_is_not_delivered_and_not_counted(tmp_path: Path) -> None:
    settings = {"group.share.min.delivery.count.limit": "2", "group.share.delivery.count.limit": "2"}
    with local_broker(tmp_path / "data", settings, make_disk=FailingDisk) as local:
        disk = local.node.disk
        assert isinstance(disk, FailingDisk)
        disk.loop_name = local.on_loop(lambda _: threading.current_thread().name)
        with WireClient(local.bootstrap) as client:
            topic_id = create(client, TOPIC)
            configure(client, TOPIC)
            join(client, TOPIC, TOPIC)
            append(client, TOPIC, batch(b"v"))
            disk.is_cold = True
            member = ShareMember(client, TOPIC, topic_id)
            failures = 0
            give_up = time.monotonic() + SECONDS
            while failures < 3:
                assert time.monotonic() < give_up
                codes = [data.error_code for data in parts(member.fetch(wait_ms=500)).values()]
                failures += ErrorCode.KAFKA_STORAGE_ERROR in codes
            disk.is_cold = False
            (taken,) = member.take()
    assert (taken.value, taken.deliveries) == (b"v", 1)


def test_a_group_gets_past_a_batch_that_is_damaged_on_the_disk(local: LocalBroker) -> None:
    """The next fetch reads behind it."""
    with WireClient(local.bootstrap) as client:
        topic_id = create(client, TOPIC)
        configure(client, TOPIC)
        join(client, TOPIC, TOPIC)
        for value in (b"bad", b"good"):
            append(client, TOPIC, batch(value))
        (segment,) = Path(local.node.data.path, f"{TOPIC}-0").glob("*.log")
        with segment.open("r+b") as file:
            file.seek(HEADER_SIZE)
            file.write(b"\xff")
        local.on_loop(distrust)
        member = ShareMember(client, TOPIC, topic_id)
        codes: set[int] = set()
        taken: list[int] = []
        give_up = time.monotonic() + SECONDS
        while not taken:
            assert time.monotonic() < give_up, codes
            for data in parts(member.fetch(records=1, wait_ms=100)).values():
                codes.add(data.error_code)
                taken += [each.first_offset for each in data.acquired_records]
    assert taken == [1]
    assert ErrorCode.CORRUPT_MESSAGE in codes


def distrust(node: Node) -> None:
    """Have the log believe that another process wrote it, as after a start."""
    segment = node.partitions.get(TOPIC, 0).log.read(0, 1 << 20).segment
    assert segment is not None
    segment.trusted_from = segment.size
