"""A single broker with many partitions opens those that are used, and requests wait for that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.partition.opening.partition_opener import PartitionOpener
from forebay.core.partition.named_partitions import NAMED
from forebay.errors import ErrorCode, StorageError
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from forebay.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from forebay.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from support.access.principals import ACCESS, KnownClient
from support.brokers.broker_process import running_broker
from support.brokers.local_broker import LocalBroker, local_broker
from support.busy_broker import METRICS, scraped
from support.clients.wire_client import (
    EARLIEST,
    FETCH,
    LATEST,
    MAX_TIMESTAMP,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    fetch,
    offset_at,
    only_partition,
    produce,
    read,
    read_all,
)
from support.waiting import Patience

TOPIC = "wide"
MANY = 60
FEW = {"forebay.open.before.ready.max": "10"}


def directories(data: Path) -> set[str]:
    return {path.name for path in data.glob(f"{TOPIC}-*")}


def wait_until_asked(local: LocalBroker, count: int) -> None:
    patience = Patience("requests wait")
    while len(local.node.local.opening_waits) < count:
        patience.check(None)


@contextmanager
def held_opening(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Partitions of the topic are opened when the event is set."""
    go_on, really_open = threading.Event(), PartitionOpener.open

    def open_(self: PartitionOpener, image: Any, topic: Any, state: Any) -> Any:
        if topic.name == TOPIC:
            go_on.wait()
        return really_open(self, image, topic, state)

    monkeypatch.setattr(PartitionOpener, "open", open_)
    try:
        yield go_on
    finally:
        go_on.set()


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[tuple[LocalBroker, WireClient, Path]]:
    with local_broker(tmp_path / "data", FEW) as local, WireClient(local.bootstrap) as client:
        create(client, TOPIC, partitions=MANY)
        yield local, client, tmp_path / "data"


def test_partitions_that_nobody_uses_have_no_directory_and_no_object(
    wide: tuple[LocalBroker, WireClient, Path],
) -> None:
    local, client, data = wide
    assert directories(data) == set()
    assert append(client, TOPIC, batch(b"first"), partition=7).error_code == ErrorCode.NONE
    assert directories(data) == {f"{TOPIC}-7"}
    assert len(local.node.partitions) == 1
    assert read_all(client, TOPIC, partition=7) == [(0, b"first")]


def test_a_topic_that_makes_them_too_many_leaves_those_before_as_they_are(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data", FEW) as local, WireClient(local.bootstrap) as client:
        create(client, "small", partitions=3)
        create(client, TOPIC, partitions=MANY)
        assert len(local.node.partitions) == 3
        grown = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="small", count=5, assignments=None)], timeout_ms=10_000
        )
        assert client.call(grown, 2).results[0].error_code == ErrorCode.NONE
        assert append(client, "small", batch(b"new"), partition=4).error_code == ErrorCode.NONE
        assert len(local.node.partitions) == 4


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_opens_what_was_used_and_leaves_the_rest(tmp_path: Path, kill: bool) -> None:
    setting = "forebay.open.before.ready.max=10"
    with running_broker(tmp_path / "data", setting) as process:
        with WireClient(process.bootstrap) as client:
            create(client, TOPIC, partitions=MANY)
            for index in (3, 50):
                append(client, TOPIC, batch(b"%d" % index), partition=index, acks=-1)
        process.kill() if kill else process.stop()
        process.start()
        with WireClient(process.bootstrap) as client:
            for index in (3, 50):
                assert read_all(client, TOPIC, partition=index) == [(0, b"%d" % index)]
            assert directories(tmp_path / "data") == {f"{TOPIC}-3", f"{TOPIC}-50"}
            assert offset_at(client, TOPIC, LATEST, partition=9) == 0


def test_every_request_for_one_is_answered_as_if_it_had_been_open(
    wide: tuple[LocalBroker, WireClient, Path],
) -> None:
    _, client, _ = wide
    assert offset_at(client, TOPIC, EARLIEST, partition=1) == 0
    assert offset_at(client, TOPIC, LATEST, partition=2) == 0
    assert read(client, TOPIC, partitions=(3,)).error_code == ErrorCode.NONE
    assert append(client, TOPIC, batch(), partition=4, acks=-1).base_offset == 0


def test_what_it_takes_on_disk_is_told_without_opening_any(
    wide: tuple[LocalBroker, WireClient, Path],
) -> None:
    _, client, data = wide
    (result,) = client.call(DescribeLogDirsRequest(topics=None), 4).results
    (topic,) = result.topics
    assert [each.partition_size for each in topic.partitions] == [0] * MANY
    assert directories(data) == set()


def test_metrics_count_them_among_the_partitions_of_the_broker(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data", {**FEW, **METRICS}) as local, WireClient(local.bootstrap) as client:
        create(client, TOPIC, partitions=MANY)
        append(client, TOPIC, batch(), partition=7)
        found = scraped(local)
        assert found("kafka_server_replicamanager_partitioncount") == MANY
        assert found("kafka_server_replicamanager_leadercount") == MANY


def test_requests_that_come_together_keep_their_order_and_are_opened_together(
    wide: tuple[LocalBroker, WireClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    local, client, _ = wide
    with held_opening(monkeypatch) as go_on:
        sent = [(n % 20, b"%d" % n) for n in range(60)]
        frames = [
            client.frame(produce(TOPIC, batch(value), partition=n, acks=-1), PRODUCE) for n, value in sent
        ]
        client.socket.sendall(b"".join(frames))
        wait_until_asked(local, 1)
        queue = local.node.partitions.opening
        patience = Patience("those behind are looked at")
        while local.on_loop(lambda _: len(queue._urgent) + len(queue._taken)) < 20:
            patience.check(None)
        go_on.set()
        answers = [only_partition(client.read()) for _ in sent]
    assert [each.index for each in answers] == [index for index, _ in sent]
    assert [each.base_offset for each in answers] == [n // 20 for n in range(60)]
    for index in range(20):
        expected = [value for at, value in sent if at == index]
        assert [value for _, value in read_all(client, TOPIC, partition=index)] == expected


def test_other_connections_are_served_while_one_waits(
    wide: tuple[LocalBroker, WireClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    local, client, _ = wide
    append(client, TOPIC, batch(b"open"), partition=0)
    with held_opening(monkeypatch) as go_on:
        client.post(produce(TOPIC, batch(b"late"), partition=5), PRODUCE)
        wait_until_asked(local, 1)
        with WireClient(local.bootstrap) as other:
            assert append(other, TOPIC, batch(b"more"), partition=0).base_offset == 1
        assert client.is_silent()
        go_on.set()
        assert only_partition(client.read()).base_offset == 0


def test_a_request_whose_time_is_over_gets_an_error_that_clients_try_again_after(
    wide: tuple[LocalBroker, WireClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    local, client, _ = wide
    with held_opening(monkeypatch):
        request = produce(TOPIC, batch(b"late"), partition=5)
        request.timeout_ms = 50
        assert only_partition(client.call(request, PRODUCE)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert len(local.node.local.opening_waits) == 0
    assert append(client, TOPIC, batch(b"again"), partition=5).base_offset == 0


def test_a_client_that_goes_leaves_nothing_behind(
    wide: tuple[LocalBroker, WireClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    local, client, _ = wide
    with held_opening(monkeypatch):
        with WireClient(local.bootstrap) as other:
            other.post(produce(TOPIC, batch(b"late"), partition=5), PRODUCE)
            wait_until_asked(local, 1)
        patience = Patience("it is forgotten")
        while len(local.node.local.opening_waits):
            patience.check(None)
    assert append(client, TOPIC, batch(b"another"), partition=5).base_offset == 0


def test_a_request_for_what_cannot_be_opened_is_told_so(
    wide: tuple[LocalBroker, WireClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, _ = wide
    monkeypatch.setattr(PartitionOpener, "open", lambda *_: StorageError("the disk refuses"))
    assert append(client, TOPIC, batch(), partition=5).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for(
    wide: tuple[LocalBroker, WireClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    local, client, data = wide
    with held_opening(monkeypatch) as go_on:
        client.post(produce(TOPIC, batch(b"late"), partition=5), PRODUCE)
        wait_until_asked(local, 1)
        with WireClient(local.bootstrap) as other:
            delete = DeleteTopicsRequest(topics=[], topic_names=[TOPIC], timeout_ms=30_000)
            assert other.call(delete, 5).responses[0].error_code == ErrorCode.NONE
        go_on.set()
        found = only_partition(client.read()).error_code
    assert found == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    patience = Patience("nothing is left of it")
    while directories(data):
        patience.check(None)


def test_a_message_without_acknowledgement_waits_too(wide: tuple[LocalBroker, WireClient, Path]) -> None:
    _, client, _ = wide
    client.post(produce(TOPIC, batch(b"unheard"), partition=8, acks=0), PRODUCE)
    assert append(client, TOPIC, batch(b"heard"), partition=8).base_offset == 1
    assert read_all(client, TOPIC, partition=8) == [(0, b"unheard"), (1, b"heard")]


def test_the_table_of_requests_that_wait_is_that_of_the_apis() -> None:
    from forebay.broker.api_table import APIS

    assert {key for key, served in APIS.items() if served.waits} == set(NAMED)


# -- who may have them opened ----------------------------------------------------------------------------


def questions(topic: str, partitions: range, timestamp: int) -> ListOffsetsRequest:
    wanted = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index, epoch in zip(partitions, cycle((-1, 0, 1)), strict=False)
    ]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])


def test_where_an_unused_partition_ends_is_told_without_opening_it(
    wide: tuple[LocalBroker, WireClient, Path],
) -> None:
    """Whoever may describe a topic may ask; and to open one takes memory and files."""
    local, client, data = wide
    create(client, "used", partitions=6)
    for index in range(6):
        read(client, "used", partitions=(index,))
    opened = len(local.node.partitions)
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, -4, -5, -6, -7, 0, 10**13):
        found, expected = (
            [(each.error_code, each.offset, each.timestamp, each.leader_epoch) for each in topic.partitions]
            for name in (TOPIC, "used")
            for topic in client.call(questions(name, range(6), timestamp), 11).topics
        )
        assert found == expected, timestamp
    for epoch in (0, 1):
        asked = [
            OffsetForLeaderPartition(partition=index, current_leader_epoch=epoch, leader_epoch=epoch)
            for index in range(6)
        ]
        answers = [
            client.call(
                OffsetForLeaderEpochRequest(
                    replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=asked)]
                ),
                4,
            )
            for name in (TOPIC, "used")
        ]
        assert answers[0].topics[0].partitions == answers[1].topics[0].partitions
    assert len(local.node.partitions) == opened
    assert directories(data) == set()
    append(client, TOPIC, batch(b"x"), partition=2)
    assert offset_at(client, TOPIC, LATEST, partition=2) == 1


def test_nothing_is_opened_for_who_may_not_read_it(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data", {**ACCESS, **FEW}) as local, KnownClient(local) as admin:
        create(admin, TOPIC, partitions=MANY)
        with KnownClient(local, "User:eve") as eve:
            found = eve.call(fetch(TOPIC, partitions=range(MANY)), FETCH).responses[0].partitions
            assert {each.error_code for each in found} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert len(local.node.partitions) == 0
        assert directories(tmp_path / "data") == set()
        assert only_partition(admin.call(fetch(TOPIC), FETCH)).error_code == ErrorCode.NONE
        assert len(local.node.partitions) == 1
