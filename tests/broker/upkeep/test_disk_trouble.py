"""Disks that are full, broken, damaged or short of descriptors: one log suffers, the broker goes on."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.broker.net.descriptors import share_descriptors
from forebay.errors import ErrorCode
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.metadata import MetadataRequest
from support.brokers.broker_process import BrokerProcess, running_broker
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    CREATE_TOPICS,
    FETCH,
    LATEST,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    create_topic,
    fetch,
    offset_at,
    only_partition,
    produce,
    read,
    read_all,
    values_of,
)
from support.faults.faulty_disk import FaultyDisk
from support.machines.manual_clock import ManualClock
from support.waiting import Patience

SECONDS = 120.0
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# -- full and broken disks ---------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(mounted)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if result.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {result.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True, timeout=60)


def fill(client: WireClient, topic: str, acks: int) -> int:
    """Append until the disk is full; the offset at which nothing more was taken."""
    for offset in range(200):
        answer = append(client, topic, batch(bytes(200_000)), acks=acks)
        if answer.error_code != ErrorCode.NONE:
            assert (answer.error_code, answer.base_offset) == (STORAGE_ERROR, -1)
            return offset
    raise AssertionError("the disk never filled up")


@pytest.mark.parametrize("acks", [1, -1])
def test_a_full_disk_and_room_again(small_disk: Path, acks: int) -> None:
    ballast = small_disk / "ballast"
    with running_broker(small_disk / "data") as broker, WireClient(broker.bootstrap) as client:
        create(client, "full")
        create(client, "other", partitions=2)
        append(client, "other", batch(b"before"))
        ballast.write_bytes(bytes(3 << 20))
        stored = fill(client, "full", acks)
        assert stored > 3
        # What was taken is all there, and nothing of what was refused.
        assert [offset for offset, _ in read_all(client, "full")] == list(range(stored))
        assert read_all(client, "other") == [(0, b"before")]
        assert client.call(MetadataRequest(topics=[]), 9).error_code == ErrorCode.NONE
        ballast.unlink()
        assert eventually(lambda: append(client, "full", batch(b"again"), acks=acks).error_code == 0)
        assert read_all(client, "full")[stored:] == [(stored, b"again")]
        assert append(client, "other", batch(b"after")).base_offset == 1
        assert broker.stop() == 0
        broker.restart()
        with WireClient(broker.bootstrap) as again:
            assert [offset for offset, _ in read_all(again, "full")] == list(range(stored + 1))


def test_what_follows_a_refused_batch_is_refused_for_the_same_reason(small_disk: Path) -> None:
    """Called out of order, an idempotent producer would begin a new epoch, and store messages twice."""

    def numbered(sequence: int, size: int = 100) -> bytes:
        return batch(bytes(size), producer_id=7, producer_epoch=0, base_sequence=sequence)

    ballast = small_disk / "ballast"
    with running_broker(small_disk / "data") as broker, WireClient(broker.bootstrap) as client:
        create(client, "full")
        assert append(client, "full", numbered(0)).error_code == ErrorCode.NONE
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        codes = [append(client, "full", numbered(n, 200_000)).error_code for n in (1, 2, 3)]
        assert codes == [STORAGE_ERROR] * 3
        ballast.unlink()
        assert eventually(lambda: append(client, "full", numbered(1)).error_code == ErrorCode.NONE)
        assert append(client, "full", numbered(3)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert append(client, "full", numbered(2)).error_code == ErrorCode.NONE


def test_a_disk_full_to_the_last_byte(small_disk: Path, tmp_path: Path) -> None:
    """Nothing at all can be written: what cannot be done is refused, and a stop is still a stop."""
    with running_broker(small_disk / "data") as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "full")
            with (small_disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
                while ballast.write(bytes(4096)):
                    pass
            assert append(client, "full", batch(bytes(100_000)), acks=-1).error_code == STORAGE_ERROR
            (made,) = client.call(create_topic("more"), CREATE_TOPICS).topics
            assert made.error_code == ErrorCode.REQUEST_TIMED_OUT
            producer = client.call(InitProducerIdRequest(transactional_id=None), 4)
            assert (producer.error_code, producer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
            assert client.call(MetadataRequest(topics=[]), 9).error_code == ErrorCode.NONE
        assert broker.stop() == 0
        again = subprocess.run(broker.command(), capture_output=True, text=True, check=False, timeout=120)
        assert again.returncode != 0
        assert "full" in again.stderr or "space" in again.stderr
        assert "Traceback" not in again.stderr
        (small_disk / "ballast").unlink()
        broker.restart()
        with WireClient(broker.bootstrap) as client:
            assert append(client, "full", batch(b"room"), acks=-1).error_code == ErrorCode.NONE


def test_a_broker_killed_on_a_full_disk_comes_back(small_disk: Path) -> None:
    with running_broker(small_disk / "data") as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "full")
            stored = fill(client, "full", -1)
        broker.kill()
        broker.restart()
        with WireClient(broker.bootstrap) as client:
            assert [offset for offset, _ in read_all(client, "full")] == list(range(stored))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", make_disk=FaultyDisk) as running:
        yield running


def faulty(local: LocalBroker) -> FaultyDisk:
    assert isinstance(local.node.disk, FaultyDisk)
    return local.node.disk


def test_one_broken_log_does_not_touch_the_others(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client, WireClient(local.bootstrap) as waiting:
        for name in ("broken", "well"):
            create(client, name)
            append(client, name, batch(b"before"))
        waiting.post(fetch("well", 1, max_wait_ms=30_000), FETCH)
        faulty(local).break_path("append", "broken-0")
        request = produce("broken", batch(b"refused"))
        request.topic_data += produce("well", batch(b"taken")).topic_data
        broken, well = client.call(request, PRODUCE).responses
        assert broken.partition_responses[0].error_code == STORAGE_ERROR
        assert well.partition_responses[0].base_offset == 1
        assert values_of(only_partition(waiting.read()).records) == [(1, b"taken")]
        assert read_all(client, "broken") == [(0, b"before")]
        assert append(client, "broken", batch(b"refused")).error_code == STORAGE_ERROR
        faulty(local).repair()
        assert eventually(lambda: append(client, "broken", batch(b"after")).error_code == 0)
        assert [value for _, value in read_all(client, "broken")] == [b"before", b"after"]


class OddDisk(FaultyDisk):
    """A disk with a mistake in it, of the kind that no error code describes."""

    odd = ""
    """Where the path contains this, a write ends in an exception that is not the system's."""

    def check(self, operation: str, path: str) -> None:
        super().check(operation, path)
        if self.odd and operation == "append" and self.odd in path:
            raise ValueError("odd")


@pytest.mark.parametrize("acks", [1, -1])
def test_a_write_that_fails_in_an_odd_way_does_not_touch_the_others(tmp_path: Path, acks: int) -> None:
    """The batches of all partitions lie in one buffer, which the next read fills with other bytes."""
    clock = ManualClock()
    with (
        local_broker(tmp_path / "data", make_disk=OddDisk, clock=clock) as local,
        WireClient(local.bootstrap) as client,
    ):
        disk = local.node.disk
        assert isinstance(disk, OddDisk)
        for name in ("before", "odd", "after"):
            create(client, name)

        def send(value: bytes, sequence: int) -> list[tuple[int, int]]:
            """To all three in one packet, and so in one turn of the broker's loop."""
            data = batch(
                value, timestamp=clock.now_ms(), producer_id=5, producer_epoch=0, base_sequence=sequence
            )
            requests = [produce(name, data, acks=acks) for name in ("before", "odd", "after")]
            client.socket.sendall(b"".join(client.frame(request, PRODUCE) for request in requests))
            answers = [only_partition(client.read()) for _ in requests]
            return [(answer.error_code, answer.base_offset) for answer in answers]

        assert send(b"one", 0) == [(0, 0)] * 3
        disk.odd = "odd-0"
        for _ in range(3):
            assert send(b"two", 1) == [(0, 1), (STORAGE_ERROR, -1), (0, 1)]
        disk.odd = ""
        clock.advance(2000)
        assert send(b"two", 1) == [(0, 1)] * 3, "sent again, it is stored where it was not"
        assert send(b"three", 2) == [(0, 2)] * 3
        for name in ("before", "odd", "after"):
            assert [value for _, value in read_all(client, name)] == [b"one", b"two", b"three"]


def test_an_idempotent_producer_can_send_again_what_a_full_disk_refused(local: LocalBroker) -> None:
    def numbered(sequence: int) -> bytes:
        return batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)

    with WireClient(local.bootstrap) as client:
        create(client, "numbered")
        assert append(client, "numbered", numbered(0)).base_offset == 0
        faulty(local).free = 0
        frames = [client.frame(produce("numbered", numbered(n)), PRODUCE) for n in (1, 2, 3)]
        client.socket.sendall(b"".join(frames))
        assert [only_partition(client.read()).error_code for _ in frames] == [STORAGE_ERROR] * 3
        faulty(local).repair()
        assert eventually(lambda: append(client, "numbered", numbered(1)).error_code == 0)
        assert [append(client, "numbered", numbered(n)).base_offset for n in (2, 3)] == [2, 3]
        assert [value for _, value in read_all(client, "numbered")] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("before", [1, 4])
@pytest.mark.parametrize("tries", [1, 2])
def test_a_batch_that_a_full_disk_refused_is_not_overtaken_when_there_is_room(
    local: LocalBroker, before: int, tries: int
) -> None:
    """After four requests the fast path has taken it. At first it is queued and not written, then refused."""

    def code(client: WireClient, sequence: int, producer_id: int = 7) -> int:
        data = batch(b"%d" % sequence, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        answer: int = append(client, "numbered", data, acks=-1).error_code
        return answer

    with WireClient(local.bootstrap) as client, WireClient(local.bootstrap) as other:
        create(client, "numbered")
        assert [code(client, sequence) for sequence in range(before)] == [ErrorCode.NONE] * before
        faulty(local).free = 0
        assert [code(client, before) for _ in range(tries)] == [STORAGE_ERROR] * tries
        faulty(local).repair()
        assert eventually(lambda: code(other, 0, producer_id=8) == ErrorCode.NONE)
        assert code(client, before + 1) == STORAGE_ERROR, "not out of order"
        assert [code(client, before + number) for number in range(2)] == [ErrorCode.NONE] * 2
        assert code(client, before + 7) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_read_that_the_disk_refuses_is_an_error_and_no_end(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data") as local, WireClient(local.bootstrap) as client:
        create(client, "unreadable")
        for _ in range(5):
            append(client, "unreadable", batch(bytes(5000)))
    with local_broker(tmp_path / "data", make_disk=FaultyDisk) as local:
        faulty(local).break_path("pread", "unreadable-0/00000000000000000000.log")
        with WireClient(local.bootstrap) as client:
            assert read(client, "unreadable").error_code == STORAGE_ERROR
            assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
            faulty(local).repair()
            assert [offset for offset, _ in read_all(client, "unreadable")] == list(range(5))


# -- damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["header", "records"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_damage_in_an_old_segment_is_told_and_never_served(
    fresh_broker: BrokerProcess, how: str, where: str
) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, "damaged", segment_bytes="5000")
        for number in range(20):
            append(client, "damaged", batch(b"%02d" % number * 500), acks=-1)
    # Checkpoints are written on a clean stop; after a kill only what was not synced is looked at.
    fresh_broker.stop()
    if how == "killed":
        fresh_broker.restart()
        fresh_broker.kill()
    segments = sorted((fresh_broker.data / "damaged-0").glob("*.log"))
    assert len(segments) > 3
    old = segments[1]
    first = int(old.stem)
    size = len(batch(b"00" * 500))
    content = bytearray(old.read_bytes())
    content[size + (16 if where == "header" else 500)] ^= 0xFF  # in its second batch
    old.write_bytes(content)
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        damaged = read(client, "damaged", first + 1)
        assert damaged.error_code == ErrorCode.CORRUPT_MESSAGE
        assert not damaged.records
        assert values_of(read(client, "damaged", first - 1).records)[-1][0] >= first - 1
        beyond = int(segments[2].stem)
        assert values_of(read(client, "damaged", beyond).records)[0][0] == beyond
        assert append(client, "damaged", batch(b"goes on")).base_offset == 20


def test_damage_in_one_partition_leaves_the_others_in_the_same_fetch(fresh_broker: BrokerProcess) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, "beside", partitions=3)
        for partition in range(3):
            append(client, "beside", batch(bytes(1000)), partition=partition, acks=-1)
    fresh_broker.stop()
    (segment,) = (fresh_broker.data / "beside-1").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[-5] ^= 1
    segment.write_bytes(content)
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        for _ in range(3):
            answer = client.call(fetch("beside", partitions=(0, 1, 2)), FETCH)
            found = [
                (data.error_code, len(data.records or b"") > 0) for data in answer.responses[0].partitions
            ]
            assert found == [(0, True), (ErrorCode.CORRUPT_MESSAGE, False), (0, True)]


# -- one directory, one broker -----------------------------------------------------------------------------


def test_a_second_start_on_the_same_directory_is_refused_with_the_pid(broker: BrokerProcess) -> None:
    second = BrokerProcess(broker.data)
    second.log_path = broker.data.with_name("second.stderr")
    result = subprocess.run(second.command(), capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode != 0
    assert str(broker.pid) in result.stderr
    assert "Traceback" not in result.stderr
    with WireClient(broker.bootstrap) as client:
        assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE


def state_of(pid: int) -> str:
    """As the kernel has it: T for a process that is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_broker_that_was_stopped_for_a_while_goes_on(fresh_broker: BrokerProcess) -> None:
    with WireClient(fresh_broker.bootstrap) as client, WireClient(fresh_broker.bootstrap) as waiting:
        create(client, "paused")
        waiting.post(fetch("paused", max_wait_ms=30_000), FETCH)
        assert waiting.is_silent()
        os.kill(fresh_broker.pid, signal.SIGSTOP)
        try:
            patience = Patience("the broker stands still")
            while (state := state_of(fresh_broker.pid)) != "T":
                patience.check(state)
            client.post(produce("paused", batch(b"while asleep"), acks=-1), PRODUCE)
        finally:
            os.kill(fresh_broker.pid, signal.SIGCONT)
        assert only_partition(client.read()).base_offset == 0
        assert values_of(only_partition(waiting.read()).records) == [(0, b"while asleep")]


# -- few descriptors ---------------------------------------------------------------------------------------


class LimitedBroker(BrokerProcess):
    """A broker that can neither open more files than this nor raise the limit again."""

    descriptors = 256

    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {self.descriptors}; exec "$@"', "sh", *super().command()]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[LimitedBroker]:
    broker = LimitedBroker(tmp_path / "data", forked=False)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def test_more_partitions_than_descriptors(limited: LimitedBroker) -> None:
    with WireClient(limited.bootstrap) as client:
        create(client, "many", partitions=300, segment_bytes="1000")
        for _ in range(3):
            for partition in range(300):
                assert (
                    append(client, "many", batch(bytes(500)), partition=partition).error_code
                    == ErrorCode.NONE
                )
        for partition in range(0, 300, 7):
            assert len(read_all(client, "many", partition)) == 3
    limited.kill()
    limited.restart()
    with WireClient(limited.bootstrap) as client:
        for partition in range(300):
            assert offset_at(client, "many", LATEST, partition) == 3
        assert append(client, "many", batch(), acks=-1).base_offset == 3
    assert limited.stop() == 0


def test_more_connections_than_descriptors(limited: LimitedBroker) -> None:
    """Those that do not fit are turned away; the logs have descriptors of their own."""
    with WireClient(limited.bootstrap) as client:
        create(client, "kept", partitions=100)
        crowd = [WireClient(limited.bootstrap) for _ in range(LimitedBroker.descriptors)]
        assert crowd[0].call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
        assert crowd[-1].is_closed()
        for partition in range(100):
            assert append(client, "kept", batch(b"one"), partition=partition, acks=-1).base_offset == 0
        for member in crowd:
            member.close()
        client.call(ApiVersionsRequest(), 3)
        with WireClient(limited.bootstrap) as late:
            assert read_all(late, "kept", 99) == [(0, b"one")]
    assert "ulimit -n" in limited.log()


def test_descriptors_are_shared_out() -> None:
    for limit in (0, 64, 256, 1024, 20_000, resource.RLIM_INFINITY):
        files, connections, indexes = share_descriptors(512, 256, limit=limit)
        assert 16 <= files <= 512
        assert connections >= 16
        if limit > 64:
            assert files + connections + 3 * indexes < limit
