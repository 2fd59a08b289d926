"""Compaction in a running broker: beside producers and consumers, across restarts, with every client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.broker.partition.partition import Partition
from forebay.storage.disk import Disk
from forebay.storage.log.compaction.cleaner import Cleaner, CleaningTask
from forebay.storage.log.segment.segment import Segment
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import HEADER_SIZE, build_batch, records, split
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.records import Record
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.kafka_clients import Client, each_client, need
from support.clients.wire_client import WireClient, append, create, read
from support.faults.faulty_disk import FaultyDisk

SECONDS = 120.0
EAGER = {"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0"}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "2000",
    "file_delete_delay_ms": "0",
}


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def put(client: WireClient, topic: str, *pairs: tuple[bytes, bytes | None], **producer: int) -> int:
    now = int(time.time() * 1000)
    made = [Record(n, now, key, value) for n, (key, value) in enumerate(pairs)]
    answer = append(client, topic, bytes(build_batch(made, **producer)))
    assert answer.error_code == 0, answer.error_message
    offset: int = answer.base_offset
    return offset


def everything(client: WireClient, topic: str, offset: int = 0) -> list[Record]:
    """Every message from an offset on; what compaction has emptied is passed over by its header."""
    found: list[Record] = []
    while True:
        answer = read(client, topic, offset)
        assert answer.error_code == 0
        data = bytes(answer.records or b"")
        if not data:
            assert offset == answer.high_watermark
            return found
        for position, header in split(data):
            batch = data[position : position + header.size]
            found += [record for record in records(batch) if record.offset >= offset]
            offset = max(offset, header.next_offset)


def table(client: WireClient, topic: str) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in everything(client, topic)}


def partition_of(broker: Node, topic: str) -> Partition:
    return broker.partitions.get(topic, 0)


def first_dirty(broker: LocalBroker, topic: str) -> int:
    return broker.on_loop(lambda running: running.data.first_dirty_offset(topic, 0))


def roll(broker: LocalBroker, topic: str) -> int:
    """Close the active segment; the offset up to which cleaning may come."""

    def act(running: Node) -> int:
        log = partition_of(running, topic).log
        log.roll()
        return log.end_offset

    return broker.on_loop(act)


def wait_until_clean(broker: LocalBroker, topic: str) -> None:
    """Also until it is counted, which the loop does after a thread has written down how far it has come."""
    end = roll(broker, topic)
    assert eventually(lambda: first_dirty(broker, topic) >= end and not is_cleaning(broker))


def test_each_key_is_left_once_and_stays_across_restarts(tmp_path: Path) -> None:
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED)
        for number in range(200):
            put(client, "t", (b"k%d" % (number % 10), b"v%d" % number), (b"other", b"x" * 30))
        wait_until_clean(broker, "t")
        found = everything(client, "t")
        expected = [(f"k{n % 10}".encode(), f"v{n}".encode()) for n in range(190, 200)]
        assert [(r.key, r.value) for r in found if r.key != b"other"] == expected
        assert [r.offset for r in found if r.key != b"other"] == list(range(380, 400, 2))
        metrics = dict(broker.on_loop(lambda running: list(running.metrics.samples())))
        assert metrics["forebay_logs_compacted_total"] > 0
        assert metrics["forebay_compaction_freed_bytes_total"] > 15_000
        assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 400\n"
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        assert everything(client, "t") == found
        assert first_dirty(broker, "t") == 400
        assert put(client, "t", (b"k0", b"again")) == 400


def test_other_topics_are_left_alone(tmp_path: Path) -> None:
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED)
        create(client, "plain", segment_bytes="2000")
        for number in range(60):
            put(client, "plain", (b"k", b"v%d" % number))
            put(client, "t", (b"k", b"v%d" % number))
        roll(broker, "plain")
        wait_until_clean(broker, "t")
        assert len(everything(client, "t")) == 1
        assert len(everything(client, "plain")) == 60


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    settings = {**EAGER, "log.cleaner.enable": "false"}
    with local_broker(tmp_path, settings) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED)
        put(client, "t", (b"k", b"1"))
        put(client, "t", (b"k", b"2"))
        roll(broker, "t")
        time.sleep(0.2)
        assert len(everything(client, "t")) == 2


def test_deleted_keys_disappear_altogether(tmp_path: Path) -> None:
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED, delete_retention_ms="0")
        put(client, "t", (b"a", b"1"), (b"b", b"1"))
        put(client, "t", (b"a", None))
        wait_until_clean(broker, "t")
        put(client, "t", (b"c", b"1"))
        wait_until_clean(broker, "t")
        assert table(client, "t") == {b"b": b"1", b"c": b"1"}


def test_what_is_young_stays_and_what_is_old_is_closed_in_time(tmp_path: Path) -> None:
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "young", 1, **COMPACTED, min_compaction_lag_ms="3600000")
        create(client, "old", 1, **COMPACTED, max_compaction_lag_ms="50", min_cleanable_dirty_ratio="1")
        for topic in ("young", "old"):
            put(client, topic, (b"a", b"1"))
            put(client, topic, (b"a", b"2"))
        roll(broker, "young")
        # Nobody rolls it and nobody appends: its age alone makes it ready.
        assert eventually(lambda: len(everything(client, "old")) == 1)
        assert len(everything(client, "young")) == 2


def test_a_message_that_was_due_stays_visible_when_later_ones_go(tmp_path: Path) -> None:
    """Its batch is not made to reach over offsets that are not due: then it would wait with them."""
    day_ms = 86_400_000
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED, forebay_delay_ms=str(day_ms))
        now = int(time.time() * 1000)
        for key, timestamp in ((b"a", now - 2 * day_ms), (b"b", now), (b"b", now)):
            answer = append(client, "t", bytes(build_batch([Record(0, timestamp, key, b"1")])))
            assert answer.error_code == 0
        assert eventually(lambda: bool(read(client, "t", 0).records))
        roll(broker, "t")
        put(client, "t", (b"b", b"x" * 1900))
        wait_until_clean(broker, "t")
        scan = broker.on_loop(lambda running: list(partition_of(running, "t").log.files.scan(0)))
        assert [header.base_offset for _, header in scan if header.record_count] == [0, 3]
        (found,) = records(bytes(read(client, "t", 0).records or b""))
        assert (found.offset, found.key) == (0, b"a")


def test_a_producer_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its last batch is superseded and its snapshot lost; what comes next is still known."""
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED)
        for sequence in range(3):
            put(client, "t", (b"a", b"1"), producer_id=77, producer_epoch=0, base_sequence=sequence)
        put(client, "t", (b"a", b"2"))
        wait_until_clean(broker, "t")
        assert [record.value for record in everything(client, "t")] == [b"2"]
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        ahead = bytes(
            build_batch([Record(0, 0, b"a", b"3")], producer_id=77, producer_epoch=0, base_sequence=9)
        )
        assert append(client, "t", ahead).error_code == 45  # OUT_OF_ORDER_SEQUENCE_NUMBER
        put(client, "t", (b"a", b"3"), producer_id=77, producer_epoch=0, base_sequence=3)
        assert table(client, "t") == {b"a": b"3"}


def test_producers_and_consumers_do_not_notice(tmp_path: Path) -> None:
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED)
        count, stopped, problems = 3000, threading.Event(), []

        def watch() -> None:
            """Offsets rise and values of a key never go back, wherever reading begins."""
            try:
                with WireClient(broker.bootstrap) as reader:
                    while not stopped.is_set():
                        seen: dict[bytes | None, int] = {}
                        for record in everything(reader, "t"):
                            assert record.value is not None
                            assert seen.get(record.key, -1) < int(record.value)
                            seen[record.key] = int(record.value)
            except BaseException as problem:
                problems.append(problem)

        watcher = threading.Thread(target=watch)
        watcher.start()
        for number in range(count):
            put(client, "t", (b"k%d" % (number % 7), b"%d" % number))
        wait_until_clean(broker, "t")
        stopped.set()
        watcher.join(SECONDS)
        assert not problems
        assert table(client, "t") == {b"k%d" % (n % 7): b"%d" % n for n in range(count - 7, count)}
        assert len(everything(client, "t")) == 7


def slow_broker(path: Path, client_topic: str) -> tuple[dict[str, str], Callable[[LocalBroker], None]]:
    settings = {**EAGER, "log.cleaner.io.max.bytes.per.second": "4000"}

    def begin(broker: LocalBroker) -> None:
        with WireClient(broker.bootstrap) as client:
            create(client, client_topic, 1, **COMPACTED)
            for number in range(300):
                put(client, client_topic, (b"k%d" % (number % 5), b"v%d" % number))
            roll(broker, client_topic)
        assert eventually(lambda: any((path / f"{client_topic}-0").glob("*.cleaned")) or is_cleaning(broker))

    return settings, begin


def is_cleaning(broker: LocalBroker) -> bool:
    return broker.on_loop(lambda running: running.compactor.cleaning is not None)


def test_a_stop_does_not_wait_for_a_cleaning(tmp_path: Path) -> None:
    settings, begin = slow_broker(tmp_path, "t")
    with local_broker(tmp_path, settings) as broker:
        begin(broker)
    assert not list((tmp_path / "t-0").glob("*.swap"))
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        assert table(client, "t") == {b"k%d" % (n % 5): b"v%d" % n for n in range(295, 300)}
        wait_until_clean(broker, "t")
        assert len(everything(client, "t")) == 5


def test_a_topic_is_deleted_while_it_is_cleaned(tmp_path: Path) -> None:
    settings, begin = slow_broker(tmp_path, "t")
    with local_broker(tmp_path, settings) as broker, WireClient(broker.bootstrap) as client:
        begin(broker)
        client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000), 6)
        assert eventually(lambda: not (tmp_path / "t-0").exists())
        create(client, "t", 1, **COMPACTED)
        put(client, "t", (b"new", b"1"))
        assert eventually(lambda: not is_cleaning(broker))
        assert table(client, "t") == {b"new": b"1"}
        assert first_dirty(broker, "t") == 0


def test_a_damaged_log_is_left_alone_and_others_are_not(tmp_path: Path) -> None:
    idle = {**EAGER, "log.cleaner.enable": "false"}
    with local_broker(tmp_path, idle) as broker, WireClient(broker.bootstrap) as client:
        for topic in ("bad", "good"):
            create(client, topic, 1, **COMPACTED)
            put(client, topic, (b"a", b"1"))
            put(client, topic, (b"a", b"2"))
            roll(broker, topic)
    path = tmp_path / "bad-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[HEADER_SIZE + 5] ^= 1
    path.write_bytes(data)
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: len(everything(client, "good")) == 1)
        assert eventually(lambda: not is_cleaning(broker))
        assert path.read_bytes() == data


def cleanings(broker: LocalBroker) -> int:
    return broker.on_loop(lambda running: running.metrics.logs_compacted)


def test_a_log_with_a_gap_between_segments_is_cleaned_once_and_others_get_their_turn(tmp_path: Path) -> None:
    idle = {**EAGER, "log.cleaner.enable": "false"}
    with local_broker(tmp_path, idle) as broker, WireClient(broker.bootstrap) as client:
        create(client, "gap", 1, **COMPACTED)
        create(client, "good", 1, **COMPACTED)
    directory = tmp_path / "gap-0"
    for path in directory.glob("0*"):
        path.unlink()
    now = int(time.time() * 1000)
    for offset in (0, 50, 90):
        made = build_batch([Record(offset, now, b"a", b"%d" % offset)], base_offset=offset)
        (directory / f"{offset:020d}.log").write_bytes(made)
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        assert put(client, "gap", (b"a", b"new")) == 91
        assert eventually(lambda: first_dirty(broker, "gap") == 90)
        put(client, "good", (b"a", b"1"))
        put(client, "good", (b"a", b"2"))
        before = cleanings(broker)
        wait_until_clean(broker, "good")
        assert cleanings(broker) <= before + 1
        assert table(client, "gap") == {b"a": b"new"}


class Futile(Cleaner):
    """A cleaning of the topic `bad` changes nothing, and nobody has thought of the reason."""

    def __init__(self, disk: Disk, directory: str, task: CleaningTask, pace: Callable[[int], None]) -> None:
        super().__init__(disk, directory, task, pace)
        self._is_bad = "bad" in directory
        self._first_dirty = task.plan.first_dirty_offset

    def read_keys(self, aborted: Sequence[AbortedTxn]) -> list[list[Segment]]:
        groups = super().read_keys(aborted)
        if self._is_bad:
            self.end_offset = self._first_dirty
        return groups


def test_a_log_that_does_not_get_cleaner_is_left_alone_until_there_is_more_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.broker.upkeep.compaction.Cleaner", Futile)
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "bad", 1, **COMPACTED)
        create(client, "good", 1, **COMPACTED)

        def dirty(topic: str) -> None:
            put(client, topic, (b"a", b"1"))
            put(client, topic, (b"a", b"2"))

        dirty("bad")
        roll(broker, "bad")
        assert eventually(lambda: cleanings(broker) == 1)
        for turn in range(3):
            dirty("good")
            wait_until_clean(broker, "good")
            assert cleanings(broker) == turn + 2
        dirty("bad")
        roll(broker, "bad")
        assert eventually(lambda: cleanings(broker) == 5)


class RefusingDisk(FaultyDisk):
    """It makes no names durable while there is a swap."""

    refuses = True
    refusals = 0

    def fsync_dir(self, path: str) -> None:
        if self.refuses and any(name.endswith(".swap") for name in self.list(path)):
            self.refusals += 1
            raise OSError("refused")
        super().fsync_dir(path)


def test_compaction_goes_on_when_the_disk_does(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path, EAGER, make_disk=RefusingDisk) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        disk = broker.node.disk
        assert isinstance(disk, RefusingDisk)
        create(client, "t", 1, **COMPACTED)
        put(client, "t", (b"a", b"1"))
        put(client, "t", (b"a", b"2"))
        end = roll(broker, "t")
        assert eventually(lambda: disk.refusals > 2)
        assert table(client, "t") == {b"a": b"2"}
        disk.refuses = False
        assert eventually(lambda: first_dirty(broker, "t") >= end)
        assert [record.value for record in everything(client, "t")] == [b"2"]


class Mistaken(Cleaner):
    def read_keys(self, aborted: Sequence[AbortedTxn]) -> list[list[Segment]]:
        groups = super().read_keys(aborted)
        if "bad" in groups[0][0].file.path:
            raise ZeroDivisionError
        return groups


def test_a_mistake_of_ours_with_one_log_does_not_keep_us_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.broker.upkeep.compaction.Cleaner", Mistaken)
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        for topic in ("bad", "good"):
            create(client, topic, 1, **COMPACTED)
            put(client, topic, (b"a", b"1"))
            put(client, topic, (b"a", b"2"))
        roll(broker, "bad")
        assert eventually(lambda: broker.on_loop(lambda running: running.metrics.background_failures) == 1)
        wait_until_clean(broker, "good")
        assert len(everything(client, "bad")) == 2
        assert broker.on_loop(lambda running: running.metrics.background_failures) == 1


def test_the_largest_settings_that_are_allowed_do_no_harm(tmp_path: Path) -> None:
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        largest = str(2**63 - 1)
        settings = {**COMPACTED, "delete_retention_ms": largest, "max_compaction_lag_ms": largest}
        create(client, "t", 1, **settings, segment_ms=largest, retention_ms=largest)
        put(client, "t", (b"a", b"1"), (b"b", b"1"))
        put(client, "t", (b"a", None))
        wait_until_clean(broker, "t")
        assert table(client, "t") == {b"a": None, b"b": b"1"}
        put(client, "t", (b"c", b"1"))
        wait_until_clean(broker, "t")
        assert table(client, "t") == {b"a": None, b"b": b"1", b"c": b"1"}


@pytest.fixture(scope="module")
def holey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker with a log whose first segments hold nothing but bare headers."""
    with local_broker(tmp_path_factory.mktemp("holey"), EAGER) as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "t", 1, **COMPACTED)
            for number in range(100):
                put(client, "t", (b"a", b"x" * 60), (b"b", b"%d" % number))
            wait_until_clean(broker, "t")
            put(client, "t", (b"c", b"last"))
        yield broker


@each_client
def test_every_client_reads_past_what_is_gone(holey: LocalBroker, client: Client) -> None:
    need(client)
    received = client.consume(holey.bootstrap, "t", 3)
    assert [(found.offset, found.message.key) for found in received] == [
        (198, b"a"),
        (199, b"b"),
        (200, b"c"),
    ]


WIDE_SEGMENTS = 12


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, list[int]]]:
    """A broker with a log whose segments begin with a message each, and have nothing behind it; the offsets
    of these messages."""
    with local_broker(tmp_path_factory.mktemp("wide"), EAGER) as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "t", 1, **COMPACTED)
            kept = []
            for number in range(WIDE_SEGMENTS):
                kept.append(put(client, "t", (b"k%d" % number, b"1")))
                for _ in range(12):
                    put(client, "t", (b"b", b"x" * 60))
                roll(broker, "t")
            wait_until_clean(broker, "t")
            put(client, "t", (b"c", b"last"))
        scan = broker.on_loop(lambda running: list(partition_of(running, "t").log.files.scan(0)))
        widths = {header.base_offset: header.last_offset_delta for _, header in scan}
        # Some may have been cleaned meanwhile, and have grown together.
        assert [widths[offset] for offset in kept].count(12) > WIDE_SEGMENTS // 2, "they were not widened"
        yield broker, kept


@each_client
def test_every_client_goes_on_from_within_the_offsets_that_a_batch_has_got(
    wide: tuple[LocalBroker, list[int]], client: Client
) -> None:
    need(client)
    broker, kept = wide
    for begin in (1, 3, WIDE_SEGMENTS // 2, WIDE_SEGMENTS - 1):
        expected = [b"k%d" % number for number in range(begin, WIDE_SEGMENTS)] + [b"b", b"c"]
        for offset in (kept[begin - 1] + 1, kept[begin - 1] + 7, kept[begin] - 1):
            received = client.consume(broker.bootstrap, "t", len(expected), offset=offset)
            assert [found.message.key for found in received] == expected
