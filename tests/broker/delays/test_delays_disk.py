"""What waits for its time where the disk fails: nothing is lost, stuck or delivered twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.alter_delays import CANCEL, AlterDelaysRequest
from support.brokers.local_broker import local_broker
from support.clients.delaying import (
    after,
    at,
    batch_of,
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
