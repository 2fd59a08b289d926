"""Materialized views on one broker: a topic that holds what the query shows, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.views import fill_position
from forebay.errors import ErrorCode
from forebay.wire.batch import records, split
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.describe_fills import DescribeFillsRequest
from forebay.wire.records import Record
from support.brokers.broker_process import StartBroker
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.config_calls import describe
from support.clients.view_calls import delete, document, documents, make_view, try_view
from support.clients.wire_client import (
    EARLIEST,
    LATEST,
    WireClient,
    append,
    create,
    offset_at,
    read,
    read_all,
    values_of,
)
from support.faults.faulty_disk import FaultyDisk
from support.faults.held_threads import HeldThreads

EVEN = "value.id % 2 = 0"
_SECONDS_MAX = 60.0


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBroker]:
    monkeypatch.setattr(fill_position, "_GAP_S", 0.0)
    with local_broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def materialize(client: WireClient, name: str, source: str, where: str | None = None, **query: Any) -> bytes:
    return make_view(client, name, source, where, materialize="true", **query)


def until(seen: Callable[[], Any], expected: Any) -> None:
    """Wait for something; the test fails with what was seen instead."""
    deadline = time.monotonic() + _SECONDS_MAX
    while (found := seen()) != expected:
        assert time.monotonic() < deadline, f"{found} instead of {expected}"
        time.sleep(0.02)


def shown(client: WireClient, topic: str, partition: int = 0) -> list[int]:
    """The offsets of all messages."""
    return [offset for offset, _ in read_all(client, topic, partition)]


def test_it_holds_what_the_query_shows_at_the_source_s_offsets(client: WireClient) -> None:
    create(client, "source")
    append(client, "source", documents(range(10)))
    materialize(client, "even", "source", EVEN)
    append(client, "source", documents(range(10, 15)))
    until(lambda: offset_at(client, "even", LATEST), 15)
    assert read_all(client, "even") == [(at, document(at)) for at in range(0, 15, 2)]
    data = memoryview(read(client, "even").records)
    first = next(iter(records(data[: split(data)[0][1].size])))
    assert first == Record(0, 1_000, b"k0", document(0), [("region", b"eu")]), "whole, with its own time"
    assert offset_at(client, "even", 1_003) == 4, "times lead to the messages that it has"


def test_each_partition_is_filled_from_its_own(client: WireClient) -> None:
    create(client, "source", partitions=3)
    materialize(client, "even", "source", EVEN, select="value.id, partition")
    for partition in range(3):
        append(client, "source", documents(range(4)), partition=partition)
    for partition in range(3):
        until(partial(offset_at, client, "even", LATEST, partition), 4)
        expected = [(at, b'{"id":%d,"partition":%d}' % (at, partition)) for at in (0, 2)]
        assert read_all(client, "even", partition) == expected


def test_where_nothing_matches_it_comes_to_the_end_and_shows_nothing(client: WireClient) -> None:
    create(client, "source")
    materialize(client, "none", "source", "value.id < 0")
    for _ in range(5):
        append(client, "source", documents(range(20)))
    until(lambda: offset_at(client, "none", LATEST), 100)
    assert read_all(client, "none") == []


def test_it_keeps_what_its_source_deletes(client: WireClient) -> None:
    create(client, "source")
    append(client, "source", documents(range(10)))
    materialize(client, "even", "source", EVEN)
    until(lambda: offset_at(client, "even", LATEST), 10)
    cut(client, "source", 10)
    append(client, "source", documents(range(10, 12)))
    until(lambda: shown(client, "even"), [0, 2, 4, 6, 8, 10])


def test_it_begins_where_its_source_does(broker: LocalBroker, client: WireClient) -> None:
    create(client, "source")
    append(client, "source", documents(range(10)))
    cut(client, "source", 5)
    materialize(client, "even", "source", EVEN)
    until(lambda: shown(client, "even"), [6, 8])
    assert broker.on_loop(lambda node: node.metrics.view_offsets_missed) == 0


def test_what_was_deleted_before_it_was_copied_is_counted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with local_broker(data) as broker, WireClient(broker.bootstrap) as client:
        create(client, "source")
        append(client, "source", documents(range(4)))
        materialize(client, "even", "source", EVEN)
        until(lambda: shown(client, "even"), [0, 2])
        broker.on_loop(lambda node: node.filling.close())
        append(client, "source", documents(range(4, 10)))
        cut(client, "source", 8)
    with local_broker(data) as broker, WireClient(broker.bootstrap) as client:
        until(lambda: shown(client, "even"), [0, 2, 8])
        assert broker.on_loop(lambda node: node.metrics.view_offsets_missed) == 4


def test_nobody_writes_to_it(client: WireClient) -> None:
    create(client, "source")
    materialize(client, "even", "source", EVEN)
    for acks in (1, -1):
        assert append(client, "even", documents(range(2)), acks=acks).error_code == ErrorCode.POLICY_VIOLATION
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="even", partitions=[0])],
    )
    (topic,) = client.call(add, 3).results_by_topic_v3_and_below
    assert topic.results_by_partition[0].partition_error_code == ErrorCode.POLICY_VIOLATION
    append(client, "source", documents(range(1)))
    until(lambda: read_all(client, "even"), [(0, document(0))])


def test_it_grows_with_its_source_and_not_otherwise(client: WireClient) -> None:
    create(client, "source")
    materialize(client, "even", "source", EVEN)
    assert grow(client, "even", 2).error_code == ErrorCode.POLICY_VIOLATION
    assert grow(client, "source", 3).error_code == ErrorCode.NONE
    append(client, "source", documents(range(3)), partition=2)
    until(lambda: read_all(client, "even", 2), [(0, document(0)), (2, document(2))])
    refused = grow(client, "source", 1)
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS and "'even'" in refused.error_message


def test_it_is_deleted_with_its_query_and_its_source_not_before(client: WireClient) -> None:
    create(client, "source")
    append(client, "source", documents(range(3)))
    materialize(client, "even", "source", EVEN)
    refused = delete(client, "source")
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert delete(client, "even").error_code == ErrorCode.NONE
    create(client, "even")
    append(client, "even", documents(range(1)))
    assert [value for _, value in read_all(client, "even")] == [document(0)], "an ordinary topic"
    assert delete(client, "source").error_code == ErrorCode.NONE


def test_its_settings_are_its_own(client: WireClient) -> None:
    create(client, "source", retention_ms="1000000")
    materialize(client, "even", "source", EVEN)
    found = {entry.name: entry.value for entry in describe(client, 2, "even").configs}
    assert (found["forebay.view.source"], found["forebay.view.materialize"]) == ("source", "true")
    assert found["retention.ms"] != "1000000"
    refused = try_view(client, "late", "source", EVEN, materialize="perhaps")
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert try_view(client, "again", "even", EVEN).error_code == ErrorCode.INVALID_REQUEST


def test_it_is_filled_exactly_once_however_often_the_broker_is_killed(start_broker: StartBroker) -> None:
    broker = start_broker()
    with WireClient(broker.bootstrap) as client:
        create(client, "source", partitions=2, segment_bytes="20000")
        materialize(client, "even", "source", EVEN)
    for life in range(4):
        with WireClient(broker.bootstrap) as client:
            for first in range(life * 600, (life + 1) * 600, 50):
                batch = documents(range(first, first + 50))
                assert append(client, "source", batch, partition=life % 2, acks=-1).error_code == 0
            if life:
                until(lambda: bool(offset_at(client, "even", LATEST, 0)), True)
        broker.kill()
        broker.restart()
    with WireClient(broker.bootstrap) as client:
        for partition in range(2):
            expected = [each for each in read_all(client, "source", partition) if _is_even(each[1])]
            assert len(expected) == 600
            until(partial(last_of, client, "even", partition), expected[-1:])
            assert read_all(client, "even", partition) == expected


def last_of(client: WireClient, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
    return read_all(client, topic, partition)[-1:]


def _is_even(value: bytes | None) -> bool:
    assert value is not None
    return int(value.split(b":")[1].rstrip(b"}")) % 2 == 0


def test_a_broker_that_cannot_reach_the_address_it_advertises_fills_all_the_same(tmp_path: Path) -> None:
    elsewhere = {
        "advertised.listeners": "PLAINTEXT://192.0.2.1:9",
        "listeners": "PLAINTEXT://0.0.0.0:0",
        "forebay.allow.insecure": "true",
    }
    with (
        local_broker(tmp_path / "data", elsewhere) as broker,
        WireClient(
            f"127.0.0.1:{broker.on_loop(lambda node: node.server.addresses['PLAINTEXT'][1])}"
        ) as client,
    ):
        create(client, "source")
        materialize(client, "even", "source", EVEN)
        append(client, "source", documents(range(3)))
        until(lambda: shown(client, "even"), [0, 2])


def test_where_it_ends_there_is_a_gap_and_no_message(client: WireClient) -> None:
    create(client, "source")
    append(client, "source", documents(range(1)))
    materialize(client, "even", "source", EVEN)
    until(lambda: shown(client, "even"), [0])
    append(client, "source", documents(range(1, 2)))
    until(lambda: offset_at(client, "even", LATEST), 2)
    assert values_of(read(client, "even", 1).records) == []
    assert offset_at(client, "even", EARLIEST) == 0


def cut(client: WireClient, topic: str, offset: int) -> None:
    """Delete what lies before an offset."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000
    )
    (answer,) = client.call(request, 2).topics
    assert answer.partitions[0].error_code == 0


def grow(client: WireClient, topic: str, count: int) -> Any:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=10_000
    )
    (answer,) = client.call(request, 3).results
    return answer


def test_nothing_is_copied_that_a_loss_of_power_could_take_from_its_source(tmp_path: Path) -> None:
    threads = HeldThreads("forebay-sync")
    seldom = {"forebay.flush.policy": "interval", "log.flush.interval.ms": "100000000"}
    with (
        local_broker(tmp_path / "data", seldom, threads=threads) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        create(client, "source")
        materialize(client, "even", "source", EVEN)
        with threads.held():
            append(client, "source", documents(range(4)))
            assert threads.has_work(), "nobody syncs the source before it is copied"
            assert len(read_all(client, "source")) == 4
            assert read_all(client, "even") == []
        until(lambda: shown(client, "even"), [0, 2])


def test_a_source_that_cannot_be_synced_stops_no_other_view(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One fetch asks for all views whose sources a broker leads. Only the one has an error."""
    disks: list[FaultyDisk] = []

    def make_disk() -> FaultyDisk:
        disks.append(FaultyDisk())
        return disks[-1]

    seldom = {"forebay.flush.policy": "interval", "log.flush.interval.ms": "100000000"}
    with (
        local_broker(tmp_path / "data", seldom, make_disk=make_disk) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        for name in ("broken", "sound"):
            create(client, name)
            materialize(client, f"{name}-view", name)
        (disk,) = disks
        disk.break_path("datasync", "/broken-0/")
        for name in ("broken", "sound"):
            assert append(client, name, documents(range(4))).error_code == 0
        until(lambda: shown(client, "sound-view"), [0, 1, 2, 3])

        def stops() -> list[str]:
            found = client.call(DescribeFillsRequest(topic="broken-view"), 0).partitions
            return [each.reason for each in found]

        until(stops, ["source_not_served"])
        assert read_all(client, "broken-view") == [], "a copy would outlive what it was made of"
        disk.repair()
    assert "a fetch of a view could not be answered" not in caplog.text
