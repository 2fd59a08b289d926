"""A partition that the system refused to open is opened when the system allows it, without a restart."""

from __future__ import annotations

import errno
from pathlib import Path

from forebay.broker.partition.opening.opening_again import OpeningAgain, OpeningRefused
from forebay.errors import ErrorCode, StorageError
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import WireClient, append, batch, create, read_all
from support.faults.faulty_disk import FaultyDisk
from support.waiting import Patience

TOPIC = "wide"
FEW = {"forebay.open.before.ready.max": "10"}


def made(disks: list[FaultyDisk], broken: str | None = None) -> FaultyDisk:
    """A disk, made in the broker's thread; `broken` is what it refuses from the beginning."""
    disks.append(disk := FaultyDisk())
    if broken is not None:
        disk.break_path(broken, f"{TOPIC}-5", errno.EMFILE)
    return disk


def wait_until_taken(client: WireClient, value: bytes) -> int:
    """The offset of a message, sent until the partition takes it."""
    patience = Patience("the partition takes messages")
    while (answer := append(client, TOPIC, batch(value), partition=5)).error_code != ErrorCode.NONE:
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        patience.check(answer)
    return int(answer.base_offset)


def test_one_that_was_first_used_while_the_disk_was_full(tmp_path: Path) -> None:
    disks: list[FaultyDisk] = []
    with (
        local_broker(tmp_path / "data", FEW, make_disk=lambda: made(disks)) as local,
        WireClient(local.bootstrap) as client,
    ):
        (disk,) = disks
        create(client, TOPIC, partitions=60)
        disk.break_path("create", f"{TOPIC}-5", errno.ENOSPC)
        refused = append(client, TOPIC, batch(b"early"), partition=5)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.repair()
        assert wait_until_taken(client, b"late") == 0
        assert read_all(client, TOPIC, partition=5) == [(0, b"late")]


def test_one_with_messages_that_could_not_be_read_when_the_broker_started(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data") as local, WireClient(local.bootstrap) as client:
        create(client, TOPIC, partitions=6)
        append(client, TOPIC, batch(b"kept"), partition=5)
        kill(local)
    disks: list[FaultyDisk] = []
    with (
        local_broker(tmp_path / "data", make_disk=lambda: made(disks, "pread")) as local,
        WireClient(local.bootstrap) as client,
    ):
        refused = append(client, TOPIC, batch(b"early"), partition=5)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disks[0].repair()
        assert wait_until_taken(client, b"late") == 1
        assert read_all(client, TOPIC, partition=5) == [(0, b"kept"), (1, b"late")]


def kill(local: LocalBroker) -> None:
    """The next start finds logs that were not closed in order, and checks them."""
    local.on_loop(lambda node: setattr(node.data, "_vouches", False))


def test_a_damaged_log_is_not_tried_again_and_a_refused_one_after_longer_and_longer_pauses() -> None:
    now_s = 0.0
    again = OpeningAgain(lambda: now_s)
    broken: dict[tuple[str, int], StorageError] = {
        ("a", 0): OpeningRefused("full"),
        ("b", 0): StorageError("damaged"),
    }
    tried: list[float] = []
    for step in range(400):
        now_s = step / 2
        found = again.due(broken)
        assert found in ([], [("a", 0)])
        tried += [now_s] if found else []
    assert tried == [1, 3, 7, 15, 31, 63, 123, 183]
    assert again.due({}) == []
