"""An index is used if it goes with the log that is there, and otherwise made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from errno import EIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.broker.delays.following import IndexFollower
from forebay.broker.partition.waiting_messages import WaitingMessages
from forebay.core.partition.batch_rules import place
from forebay.errors import StorageError
from forebay.storage.delays.files import DelayIndexFiles
from forebay.storage.delays.index import IndexState, Noted
from forebay.storage.delays.sqlite_index import SqliteDelayIndex
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.batch import HEADER_SIZE, build_batch, read_header
from forebay.wire.records import Record
from forebay.wire.state.delay_notes import Waiting, build_note

TOPIC_ID = b"i" * 16
EPOCH, POSITION = 3, 100


class Threads:
    async def run(self, work: Callable[[], Any]) -> Any:
        return work()


def opened(
    directory: Path,
    *,
    end_offset: int,
    opened_end: int = POSITION,
    epoch: int = EPOCH,
    waiting: WaitingMessages | None = None,
) -> int:
    """The position of an index of a log that ended at one offset when it was opened, and at another now."""
    indexes = DelayIndexFiles()
    index = indexes.of(str(directory))
    index.load(TOPIC_ID)
    index.apply([Noted(7, [Waiting(8, 1, 1, 0, None, b"")])], POSITION, EPOCH)
    index.close()
    log = SimpleNamespace(directory=str(directory), start_offset=0, end_offset=end_offset)
    partition: Any = SimpleNamespace(
        log=log, topic_id=TOPIC_ID, epochs=SimpleNamespace(epoch_at=lambda _: epoch)
    )
    host: Any = SimpleNamespace(indexes=indexes, threads=Threads())
    follower = IndexFollower(host, partition, waiting or WaitingMessages(-1, opened_end))
    try:
        asyncio.run(follower.open())
    finally:
        follower.index.close()
    assert follower.state.pending == (1 if follower.state.position else 0)
    return follower.state.position


def test_an_index_of_this_log_is_used(tmp_path: Path) -> None:
    assert opened(tmp_path, opened_end=POSITION, end_offset=POSITION + 10) == POSITION


@pytest.mark.parametrize("end_offset", [POSITION - 1, POSITION + 10])
def test_an_index_that_is_ahead_of_the_log_that_was_found_is_made_anew(
    tmp_path: Path, end_offset: int
) -> None:
    """Power was lost; a broker alone keeps its epoch, and has appended since the log was opened."""
    assert opened(tmp_path, opened_end=POSITION - 1, end_offset=end_offset) == 0


def test_an_index_of_a_log_that_was_cut_before_it_was_opened_is_made_anew(tmp_path: Path) -> None:
    assert opened(tmp_path, opened_end=POSITION, end_offset=POSITION - 1) == 0


def test_an_index_of_another_leaders_log_is_made_anew(tmp_path: Path) -> None:
    assert opened(tmp_path, opened_end=POSITION, end_offset=POSITION, epoch=EPOCH + 1) == 0


def test_an_index_that_could_not_be_cleared_is_still_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages were appended meanwhile: the log has offsets that the index knows of others."""
    clear, failures = SqliteDelayIndex.clear, [StorageError("the disk is full")]

    def clear_later(index: SqliteDelayIndex) -> None:
        if failures:
            raise failures.pop()
        clear(index)

    monkeypatch.setattr(SqliteDelayIndex, "clear", clear_later)
    waiting = WaitingMessages(-1, POSITION - 1)
    with pytest.raises(StorageError):
        opened(tmp_path, waiting=waiting, end_offset=POSITION - 1)
    assert opened(tmp_path, waiting=waiting, end_offset=POSITION + 10) == 0


def test_what_a_leader_appends_without_delays_is_not_waited_for() -> None:
    """The index follows what is committed, so it never comes to the end of a log that grows."""
    waiting = WaitingMessages(EPOCH, POSITION)
    assert waiting.may_have_messages, "nothing is known yet"
    waiting.indexed(IndexState(POSITION - 1, EPOCH, 0, None, None))
    assert waiting.may_have_messages, "there may be some of the leader before"
    waiting.indexed(IndexState(POSITION, EPOCH, 0, None, None))
    assert not waiting.may_have_messages
    waiting.unindexed.appended(POSITION + 2, waiting=1)
    assert waiting.may_have_messages
    waiting.indexed(IndexState(POSITION + 2, EPOCH, 1, None, None))
    assert waiting.may_have_messages
    waiting.indexed(IndexState(POSITION + 2, EPOCH, 0, None, None))
    assert not waiting.may_have_messages


def test_damage_stops_no_index(tmp_path: Path) -> None:
    """The first header of the file of the position, which was read before, then of the next one."""
    log = open_log(RealDisk(), str(tmp_path / "log"))
    for offset in range(6):
        batch = build_batch([Record(offset, 1, b"k", b"v")], base_offset=offset)
        log.append(memoryview(batch), read_header(batch))
        log.write_pending()
        if offset % 2:
            log.roll()
    partition: Any = SimpleNamespace(log=log, high_watermark=6, closed=False, is_leader=False)
    host: Any = SimpleNamespace(indexes=DelayIndexFiles(), threads=Threads())
    for base_offset in (0, 2):
        file = tmp_path / "log" / f"{base_offset:020d}.log"
        data = bytearray(file.read_bytes())
        data[16] = 0  # the magic of the first batch
        file.write_bytes(data)
    waiting = WaitingMessages(-1, 6)
    follower = IndexFollower(host, partition, waiting)
    waiting.indexed(follower.index.load(TOPIC_ID)._replace(position=1))

    async def follow() -> None:
        while follower.state.position < 6:
            assert await follower.follow()

    asyncio.run(follow())
    assert len(log.unreadable) == 1, "the damaged batch that was to be read, and nothing behind it"
    follower.index.close()
    log.discard()


class Followed:
    """A log in one file, and the index that follows it."""

    def __init__(self, directory: Path) -> None:
        self.log = open_log(RealDisk(), str(directory / "log"))
        partition: Any = SimpleNamespace(log=self.log, high_watermark=0, closed=False, is_leader=False)
        host: Any = SimpleNamespace(indexes=DelayIndexFiles(), threads=Threads())
        waiting = WaitingMessages(-1, 0)
        self.partition = partition
        self.follower = IndexFollower(host, partition, waiting)
        waiting.indexed(self.follower.index.load(TOPIC_ID))

    def append(self, count: int, *, value: bytes = b"v") -> None:
        for _ in range(count):
            self.put(build_batch([Record(0, 1, b"k", value)]))

    def put(self, batch: bytearray) -> None:
        view = memoryview(batch)
        self.log.append(view, place(view, read_header(view), self.log.end_offset, EPOCH))
        self.log.write_pending()
        self.partition.high_watermark = self.log.end_offset

    def follow(self) -> int:
        asyncio.run(self.follower.follow())
        return self.follower.state.position

    def close(self) -> None:
        self.follower.index.close()
        self.log.discard()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    followed = Followed(tmp_path)
    yield followed
    followed.close()


def test_what_the_index_has_is_not_read_again(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lie on sectors that the disk does not give any more, which are slow to fail.

    Only the header is looked at that the offset index names.
    """
    followed.append(20)
    assert followed.follow() == 20
    size, pread, positions = followed.log.size, RealFile.pread, []

    def counted(file: RealFile, length: int, position: int) -> bytes:
        if length > HEADER_SIZE:
            positions.append(position)
        return pread(file, length, position)

    monkeypatch.setattr(RealFile, "pread", counted)
    for end in (21, 22):
        followed.append(1)
        assert followed.follow() == end
    assert len(positions) == 2 and min(positions) >= size


def test_a_log_that_was_cut_is_read_from_a_place_that_is_certain(followed: Followed) -> None:
    """Later batches lie where reading had come to."""
    followed.append(6, value=b"v" * 200)
    assert followed.follow() == 6
    reached = followed.log.size
    followed.log.files.truncate_to(3)
    followed.append(3)
    followed.put(build_note([Waiting(5, 1, 1, 0, None, b"")], bound=False, timestamp=1))
    assert followed.log.size < reached
    followed.append(20)
    assert followed.log.size > reached
    assert followed.follow() == 27
    assert followed.follower.state.pending == 1, "the note is read"


def test_what_lies_before_a_bad_sector_is_indexed_once(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.append(3)
    bad = followed.log.size
    followed.append(3)
    pread = RealFile.pread

    def fail(file: RealFile, length: int, position: int) -> bytes:
        if position <= bad < position + length:
            raise OSError(EIO, "Input/output error")
        return pread(file, length, position)

    monkeypatch.setattr(RealFile, "pread", fail)
    assert followed.follow() == 3
    with pytest.raises(StorageError, match="cannot be read"):
        followed.follow()
    monkeypatch.undo()
    assert followed.follow() == 6
