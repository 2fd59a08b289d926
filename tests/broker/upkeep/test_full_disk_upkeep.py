"""A disk that is full: what is deleted makes room, though nothing can be written that tells of it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from forebay.storage.log import deleted_files
from forebay.storage.log.config import LogConfig
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import build_batch, read_header
from forebay.wire.records import Record
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.view_calls import delete
from support.clients.wire_client import EARLIEST, WireClient, append, batch, create, offset_at
from support.faults.faulty_disk import FaultyDisk

LONG_AGO = 1_600_000_000_000
SETTINGS = {
    "log.retention.check.interval.ms": "3600000",
    "log.flush.interval.ms": "20",
    "log.segment.delete.delay.ms": "0",
}
SEGMENTED = {"segment_bytes": "1000", "retention_ms": "3600000"}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", SETTINGS, make_disk=FaultyDisk) as running:
        yield running


def run(local: LocalBroker, duty: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run_coroutine_threadsafe(duty(), local.node.loop).result(60)


def fill(client: WireClient, count: int = 12) -> None:
    """Segments that have had their time."""
    create(client, "full", 1, **SEGMENTED)
    for number in range(count):
        answer = append(client, "full", batch(bytes(200), timestamp=LONG_AGO + number), acks=-1)
        assert answer.error_code == 0


def is_full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_deleted_files_give_their_room_where_no_checkpoint_can_be_written(
    local: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their names stay until it is written: without them a log without its beginning has lost it."""
    deleted: Callable[[], list[Path]] = lambda: list((tmp_path / "data" / "full-0").glob("*.deleted"))  # noqa: E731
    with WireClient(local.bootstrap) as client:
        fill(client)
        with monkeypatch.context() as patch:
            patch.setattr(local.node.data.checkpoints, "write", is_full)
            local.on_loop(lambda broker: broker.partitions.get("full", 0).log.delete_front(2))
            for _ in range(2):
                with pytest.raises(OSError, match="no space left"):
                    run(local, local.node.upkeep.reap)
            assert deleted()
            assert sum(path.stat().st_size for path in deleted()) == 0
        run(local, local.node.upkeep.reap)
        assert not deleted()


def test_retention_deletes_from_a_log_that_cannot_be_written(local: LocalBroker) -> None:
    disk = local.node.disk
    assert isinstance(disk, FaultyDisk)
    with WireClient(local.bootstrap) as client:
        fill(client)
        disk.break_path("append", "full-0", errno.ENOSPC)
        assert append(client, "full", batch(bytes(10))).error_code
        run(local, local.node.upkeep.apply_retention)
        assert offset_at(client, "full", EARLIEST) > 0
        assert local.on_loop(lambda broker: broker.partitions.get("full", 0).log.offline)
        disk.repair()


def test_what_is_damaged_for_good_is_kept(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        fill(client)
        local.on_loop(lambda broker: broker.partitions.get("full", 0).log.take_offline("damaged"))
        run(local, local.node.upkeep.apply_retention)
        assert offset_at(client, "full", EARLIEST) == 0


def test_a_broker_that_starts_on_a_full_disk_makes_room_of_what_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before it could write where its log begins, and cannot write it either."""
    disk, path = RealDisk(), str(tmp_path / "t-0")
    log = open_log(disk, path, LogConfig(segment_bytes=300))
    for number in range(6):
        message = build_batch([Record(number, LONG_AGO, b"k", bytes(200))], base_offset=number)
        log.append(memoryview(bytes(message)), read_header(message))
        log.write_pending()
    log.files.datasync()
    assert log.delete_front(3) == 3
    log.discard()
    deleted = list(Path(path).glob("*.log.deleted"))
    assert len(deleted) == 3
    synced: list[str] = []
    monkeypatch.setattr(RealDisk, "fsync_dir", lambda _disk, path: synced.append(path))
    with pytest.raises(OSError, match="no space left"):
        open_log(disk, path, recovery_point=6, note_start=is_full)
    assert [each.stat().st_size for each in deleted] == [0, 0, 0]
    assert synced == [path]
    again = open_log(disk, path, recovery_point=6)
    assert (again.begin_offset, again.end_offset) == (3, 6)
    assert not list(Path(path).glob("*.deleted"))
    again.discard()


def test_what_is_empty_is_not_emptied_again(
    local: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint may not be writable for long, while messages come and are deleted."""
    opened: list[str] = []
    with WireClient(local.bootstrap) as client:
        fill(client)
        with monkeypatch.context() as patch:
            patch.setattr(local.node.data.checkpoints, "write", is_full)
            patch.setattr(deleted_files, "empty_files", lambda _disk, _path, files: opened.extend(files))
            for _ in range(3):
                local.on_loop(lambda broker: broker.partitions.get("full", 0).log.delete_front(1))
                with pytest.raises(OSError, match="no space left"):
                    run(local, local.node.upkeep.reap)
            assert len({name for name in opened if name.endswith(".log.deleted")}) == 3
            assert len(opened) == len(set(opened))
        run(local, local.node.upkeep.reap)
    assert not list((tmp_path / "data" / "full-0").glob("*.deleted"))


def test_a_topic_that_is_deleted_makes_room_though_no_checkpoint_can_be_written(
    local: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other topics have segments that wait for it."""
    with WireClient(local.bootstrap) as client:
        fill(client)
        create(client, "large", 1)
        append(client, "large", batch(bytes(200)), acks=-1)
        with monkeypatch.context() as patch:
            patch.setattr(local.node.data.checkpoints, "write", is_full)
            local.on_loop(lambda broker: broker.partitions.get("full", 0).log.delete_front(2))
            with suppress(OSError):
                run(local, local.node.upkeep.reap)
            delete(client, "large")
            with suppress(OSError):
                run(local, local.node.upkeep.reap)
            assert not list((tmp_path / "data").glob("large-0*"))


def test_a_broker_that_stops_while_files_are_removed_removes_no_more(
    local: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of it would take the place of the cancellation, and the broker would never have stopped."""

    async def reap() -> str:
        upkeep, begun, refused = local.node.upkeep, asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            begun.set()
            await asyncio.Event().wait()

        async def refuse() -> None:
            refused.set()
            raise OSError(errno.EIO, "the device has failed")

        with monkeypatch.context() as patch:
            patch.setattr(upkeep, "_reap_segments", wait)
            patch.setattr(local.node.assignment.unused_logs, "work_off", refuse)
            task = asyncio.ensure_future(upkeep.reap())
            await begun.wait()
            task.cancel()
            await asyncio.wait([task])
        return "cancelled" if task.cancelled() and not refused.is_set() else "went on"

    assert asyncio.run_coroutine_threadsafe(reap(), local.node.loop).result(60) == "cancelled"
