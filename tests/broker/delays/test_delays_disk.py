"""What waits for its time where the disk fails: nothing is lost, stuck or delivered twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.delays.appending import NoteAppender
from forebay.broker.node import Node
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.alter_delays import CANCEL, FIRE, AlterDelaysRequest
from support.brokers.local_broker import local_broker
from support.clients.delaying import (
    after,
    append_note_alone,
    at,
    batch_of,
    describe,
    eventually,
    eventually_values,
    named,
    now_ms,
    pending,
    send,
    values,
)
from support.clients.wire_client import WireClient, append, create
from support.faults.faulty_disk import FaultyDisk


@pytest.fixture
def disks() -> list[FaultyDisk]:
    return []


@pytest.fixture
def client(tmp_path: Path, disks: list[FaultyDisk]) -> Iterator[WireClient]:
    def make_disk() -> FaultyDisk:  # in the broker's thread, which owns it
        disks.append(FaultyDisk())
        return disks[-1]

    with local_broker(tmp_path, make_disk=make_disk) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, forebay_delay_enable="true")
        yield client


@pytest.fixture
def disk(client: WireClient, disks: list[FaultyDisk]) -> FaultyDisk:
    return disks[-1]


@pytest.mark.parametrize("value", [None, b"instead"])
def test_what_a_lost_write_would_have_cancelled_is_delivered(
    client: WireClient, disk: FaultyDisk, value: bytes | None
) -> None:
    """Nothing else is written, so the log never comes to where the lost write would have ended."""
    send(client, "t", b"stays", at(now_ms() + 2_000, schedule_key="k"))
    disk.break_path("append", ".log")
    answer = append(client, "t", batch_of(*[(value, named(schedule_key="k"))] * 5), acks=-1)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.repair()
    eventually_values(client, "t", [b"stays"])
    eventually(lambda: pending(client, "t") == 0, "it still waits")


def test_what_is_due_while_the_disk_is_full_is_delivered_once_when_it_has_room(
    client: WireClient, disk: FaultyDisk
) -> None:
    due_ms = now_ms() + 1_000
    ids = [send(client, "t", b"%d" % number, at(due_ms + number)) for number in range(3)]
    far = send(client, "t", b"far", after("1h"))
    disk.free = 0
    eventually(lambda: now_ms() > due_ms + 500, "no time passed")
    request = AlterDelaysRequest(topic="t", action=CANCEL, ids=[far], timeout_ms=300)
    assert client.call(request, 0).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert values(client, "t") == [] and len(ids) == 3
    disk.repair()
    eventually_values(client, "t", [b"0", b"1", b"2"])
    request = AlterDelaysRequest(topic="t", action=CANCEL, ids=[far])
    eventually(lambda: client.call(request, 0).error_code == 0, "nothing can be cancelled")
    assert pending(client, "t") == 0
    assert values(client, "t") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("due_in_ms", [1_000, 3_600_000])
def test_a_note_whose_batch_was_lost_stops_nothing_once_the_disk_has_room_again(
    tmp_path: Path, due_in_ms: int
) -> None:
    """The broker cannot write what is to follow the note when it starts, and nobody else writes anything."""
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, forebay_delay_enable="true")
        kept = send(client, "t", b"kept", at(now_ms() + due_in_ms))
        broker.on_loop(append_note_alone)
    disks: list[FaultyDisk] = []

    def full_disk() -> FaultyDisk:
        disks.append(FaultyDisk())
        disks[-1].break_path("append", ".log")
        return disks[-1]

    def is_offline(node: Node) -> bool:
        return node.partitions.get("t", 0).log.offline is not None

    with local_broker(tmp_path, make_disk=full_disk) as broker, WireClient(broker.bootstrap) as client:
        eventually(lambda: broker.on_loop(is_offline), "nothing was written")
        disks[-1].repair()
        if due_in_ms > 60_000:
            eventually(lambda: describe(client, "t").error_code == 0, "the index is not ready")
            assert [each.id for each in describe(client, "t").messages] == [kept]
        else:
            eventually_values(client, "t", [b"kept"])


def test_a_delivery_of_which_nobody_knows_whether_it_is_committed_is_not_acknowledged(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader was replaced: the next one may not have it."""
    far = send(client, "t", b"far", after("1h"))
    committed = NoteAppender._committed
    failures = [KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads")]

    async def is_replaced(appender: NoteAppender, size: int) -> None:
        await committed(appender, size)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(NoteAppender, "_committed", is_replaced)
    answer = client.call(AlterDelaysRequest(topic="t", action=FIRE, ids=[far]), 0)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and not failures
    eventually_values(client, "t", [b"far"])
    answer = client.call(AlterDelaysRequest(topic="t", action=FIRE, ids=[far]), 0)
    assert [each.error_code for each in answer.results] == [ErrorCode.RESOURCE_NOT_FOUND]
