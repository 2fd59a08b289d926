"""Notes are read from the log as they count: with their batch, in committed transactions, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from errno import EIO
from pathlib import Path
from struct import Struct

import pytest

from forebay.broker.delays.note_reading import NotesRead, read_notes
from forebay.core.partition.batch_rules import place
from forebay.errors import StorageError
from forebay.storage.delays.files import DelayIndexFiles
from forebay.storage.delays.index import DelayIndex, IndexState
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.batch import (
    CONTROL,
    HEADER_SIZE,
    NOTED,
    TRANSACTIONAL,
    BatchHeader,
    EndTxnMarker,
    build_batch,
    build_marker,
    read_header,
)
from forebay.wire.records import Record
from forebay.wire.state.delay_notes import CancelKey, Change, NoMore, Waiting, build_note
from support.machines.compacting import compact, task_for

NOW = 1_000_000
TOPIC_ID = b"i" * 16


def waiting(id_: int, key: bytes | None = None, due_ms: int = NOW) -> Waiting:
    return Waiting(id_, due_ms, NOW, 0, key, b"body %d" % id_)


class Story:
    """A log, and the index that follows it."""

    def __init__(self, directory: Path) -> None:
        self.log: Log = open_log(RealDisk(), str(directory / "log"))
        self.directory = str(directory)
        self.epoch = 1
        self.listed_aborts: list[int] = []
        """Where the markers of aborted transactions are, by the list of the log."""
        self.index = self.new_index()
        self.state = self.index.load(TOPIC_ID)

    def new_index(self) -> DelayIndex:
        return DelayIndexFiles().of(self.directory)

    def put(self, batch: bytearray) -> BatchHeader:
        view = memoryview(batch)
        header = place(view, read_header(view), self.log.end_offset, self.epoch)
        self.log.append(view, header)
        self.log.write_pending()
        return header

    def note(self, *changes: Change, bound: bool = True) -> int:
        """Its offset."""
        return self.put(build_note(changes, bound=bound, timestamp=NOW, relative=bound)).base_offset

    def batch(self, attributes: int = NOTED, producer_id: int = -1) -> int:
        epoch, sequence = (0, 0) if producer_id >= 0 else (-1, -1)
        made = build_batch(
            [Record(0, NOW, b"k", b"v")],
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        return self.put(made).base_offset

    def end(self, producer_id: int, *, commit: bool) -> int:
        """Its offset."""
        marker = EndTxnMarker(producer_id, 0, commit, 0)
        return self.put(build_marker(marker, timestamp=NOW)).base_offset

    def read(self, end_offset: int | None = None) -> NotesRead:
        return read_notes(
            self.log.files_from(self.state.position),
            self.aborted,
            position=self.state.position,
            leader_epoch=self.state.leader_epoch,
            end_offset=self.log.end_offset if end_offset is None else end_offset,
        )

    def aborted(self, first: int, end: int) -> list[AbortedTxn]:
        return [AbortedTxn(1, 0, offset, 0) for offset in self.listed_aborts if first <= offset < end]

    def damage(self, offset: int, place: int = -1) -> None:
        """Change a byte of the batch at an offset, by default its last."""
        for part in self.log.stretches(offset):
            for at, header in part.file.headers(part.position, part.end):
                if header.base_offset == offset:
                    file = Path(part.file.file.path)
                    data = bytearray(file.read_bytes())
                    data[at + place % header.size] ^= 0x55
                    file.write_bytes(data)
                    return
        raise AssertionError(f"there is no batch at {offset}")

    def follow(self, end_offset: int | None = None) -> IndexState:
        found = self.read(end_offset)
        self.state = self.index.apply(found.entries, found.position, found.leader_epoch)
        return self.state

    def headers(self) -> list[BatchHeader]:
        return [header for part in self.log.stretches(0) for _, header in part.batches()]

    def compact(self, now_ms: int, delete_retention_ms: int) -> None:
        """As when the index needs none of the notes."""
        task = task_for(self.log, now_ms=now_ms, delete_retention_ms=delete_retention_ms)
        assert task is not None
        compact(self.log, RealDisk(), replace(task, notes_below=self.log.end_offset))

    def read_again(self) -> list[int]:
        """What waits by an index that is made anew."""
        self.index.clear()
        self.state = IndexState(0, -1, 0, None, None)
        return self.ids()

    def ids(self) -> list[int]:
        self.follow()
        assert self.state.position == self.log.end_offset
        found = self.index.after(-1, -1, count_max=100, bytes_max=1 << 20)
        assert self.state.pending == len(found)
        return [each.id for each in found]


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    story = Story(tmp_path)
    yield story
    story.index.close()
    story.log.discard()


def test_a_note_counts_with_its_batch(story: Story) -> None:
    home = story.note(waiting(0))
    batch = story.batch()
    assert batch == home + 1
    assert story.ids() == [batch]
    assert (story.state.oldest_home, story.state.next_due_ms) == (home, NOW)


def test_a_note_that_was_left_alone_does_not_count(story: Story) -> None:
    story.note(waiting(0))
    story.batch(attributes=0)
    assert story.ids() == []
    story.note(waiting(0))
    story.epoch = 2
    story.batch()
    assert story.ids() == [], "the leader after it has appended that batch"
    story.note(waiting(0))
    story.note(waiting(0))
    last = story.batch()
    assert story.ids() == [last]
    story.note(NoMore((last,)))
    story.batch(attributes=0)
    assert story.ids() == [last], "what was not delivered still waits"


def test_a_note_waits_for_its_batch_to_be_committed(story: Story) -> None:
    story.batch(attributes=0)
    home = story.note(waiting(0))
    story.batch()
    assert story.follow(end_offset=home + 1) == IndexState(home, 1, 0, None, None)
    assert story.ids() == [home + 1]


def test_a_note_of_any_size_is_read_with_its_batch(story: Story) -> None:
    """Larger than what is read in one go."""
    for _ in range(2):
        story.note(waiting(0)._replace(body=b"x" * (5 << 20)))
        story.batch()
    first = story.follow()
    assert (first.position, first.pending) == (2, 1)
    assert story.follow().pending == 2


def test_delivered_and_cancelled_messages_wait_no_more(story: Story) -> None:
    for _ in range(3):
        story.note(waiting(0))
        story.batch()
    first, second, third = story.ids()
    story.note(NoMore((first,)))
    story.batch()
    story.note(NoMore((third,)), bound=False)
    assert story.ids() == [second]


def test_a_schedule_key_has_one_message(story: Story) -> None:
    story.note(waiting(0, b"k"))
    story.batch()
    story.note(waiting(0, b"k"), waiting(1, b"l"))
    batch = story.batch()
    assert story.ids() == [batch, batch + 1]
    story.note(CancelKey(b"k"))
    story.batch()
    assert story.ids() == [batch + 1]


def test_the_notes_of_a_transaction_count_when_it_is_committed(story: Story) -> None:
    story.note(waiting(0, b"k"))
    plain = story.batch()
    homes = [story.note(waiting(0, b"k")), story.batch(NOTED | TRANSACTIONAL, 1)]
    other = [story.note(waiting(0)), story.batch(NOTED | TRANSACTIONAL, 2)]
    assert story.ids() == [plain]
    assert story.state.oldest_home == plain - 1
    story.end(2, commit=False)
    assert story.ids() == [plain] and other
    story.end(1, commit=True)
    assert story.ids() == [homes[1]]
    assert story.state.oldest_home == homes[0]


def test_what_is_carried_on_has_another_home(story: Story) -> None:
    home = story.note(waiting(0, b"k"))
    id_ = story.batch()
    assert story.ids() == [id_]
    (message,) = story.index.of_ids([id_], bytes_max=1 << 20)
    carried = story.note(message, bound=False)
    assert story.ids() == [id_]
    assert story.state.oldest_home == carried > home
    assert story.index.of_ids([id_], bytes_max=1 << 20) == [message]
    assert story.index.forget_below(carried).pending == 1
    assert story.index.forget_below(carried + 1) == story.state._replace(
        pending=0, next_due_ms=None, oldest_home=None
    )


def test_an_index_is_opened_again_where_it_was_and_forgets_another_topic(story: Story) -> None:
    story.note(waiting(0), waiting(1, b"k"))
    batch = story.batch()
    assert story.ids() == [batch, batch + 1]
    story.index.close()
    again = story.new_index()
    assert again.load(TOPIC_ID) == story.state
    again.close()
    assert again.load(b"j" * 16) == IndexState(0, -1, 0, None, None)
    again.close()


def test_compaction_removes_no_note_before_those_in_front_of_it(story: Story) -> None:
    """Also when the later one may go first, because delete.retention.ms was lowered in between."""
    story.note(waiting(0))
    id_ = story.batch()
    story.log.roll()
    story.note(NoMore((id_,)), bound=False)
    story.compact(now_ms=0, delete_retention_ms=10_000)
    story.log.roll()
    for now_ms in (1, 2):
        story.compact(now_ms, delete_retention_ms=0)
    assert story.read_again() == [], "it would be delivered again"
    story.compact(now_ms=10_000, delete_retention_ms=0)
    assert not any(header.is_control for header in story.headers()), "they stay for ever"
    assert story.read_again() == []


# -- damage ------------------------------------------------------------------------------------------------


def test_a_damaged_note_is_passed_over_and_the_others_count(story: Story) -> None:
    story.note(waiting(0))
    first = story.batch()
    damaged = story.note(waiting(0))
    story.batch()
    story.note(waiting(0))
    last = story.batch()
    story.damage(damaged)
    assert [each.offset for each in story.read().passed_over] == [damaged]
    assert story.ids() == [first, last]


@pytest.mark.parametrize("value", [b"", b"\0\0\1", b"\0\0\1" + b"\1" * 20, b"\0\0\1" + b"\7" + b"\0" * 33])
def test_a_note_that_makes_no_sense_is_passed_over(story: Story, value: bytes) -> None:
    key = Struct(">hh").pack(0, 0x4644)
    strange = story.put(build_batch([Record(0, NOW, key, value)], attributes=CONTROL)).base_offset
    story.batch()
    story.note(waiting(0))
    last = story.batch()
    passed_over = [each.offset for each in story.read().passed_over]
    assert passed_over == ([] if value == b"\0\0\1" else [strange]), "it says nothing, but is in order"
    assert story.ids() == [last]


def test_a_note_of_a_later_version_is_not_passed_over(story: Story) -> None:
    """This broker would forget messages, and know nothing of them when it is itself of that version."""
    key = Struct(">hh").pack(0, 0x4644)
    story.put(build_batch([Record(0, NOW, key, b"\0\1\1")], attributes=CONTROL))
    with pytest.raises(StorageError, match="version 1"):
        story.read()


@pytest.mark.parametrize("commit", [True, False])
def test_what_a_damaged_marker_said_is_looked_up(story: Story, commit: bool) -> None:
    story.note(waiting(0))
    id_ = story.batch(NOTED | TRANSACTIONAL, 1)
    marker = story.end(1, commit=commit)
    if not commit:
        story.listed_aborts.append(marker)
    story.damage(marker)
    assert [each.offset for each in story.read().passed_over] == [marker]
    assert story.ids() == ([id_] if commit else [])


@pytest.mark.parametrize("byte", [16, 57, 70])
@pytest.mark.parametrize("attributes", [NOTED, NOTED | TRANSACTIONAL])
def test_a_note_counts_though_its_batch_is_damaged(story: Story, attributes: int, byte: int) -> None:
    """Its magic, its count or its records: the message is in the note, and was acknowledged."""
    story.note(waiting(0))
    damaged = story.batch(attributes, 1 if attributes & TRANSACTIONAL else -1)
    story.note(waiting(0))
    last = story.batch()
    story.damage(damaged, place=byte)
    expected = [last]
    if attributes & TRANSACTIONAL:
        assert story.ids() == [last], "nothing has ended its transaction"
        story.end(1, commit=True)
    assert story.ids() == [damaged, *expected]


def test_damage_at_the_end_is_passed_over_when_it_is_known_where_it_ends(story: Story) -> None:
    story.note(waiting(0))
    first = story.batch()
    damaged = story.batch(attributes=0)
    for byte in (26, 16):  # how many offsets it takes, and its magic
        story.damage(damaged, place=byte)
    assert story.follow().position == first + 1, "what lies before it counts"
    with pytest.raises(StorageError, match="not the header"):
        story.read()
    story.log.roll()
    story.note(waiting(0))
    last = story.batch()
    assert story.ids() == [first, last]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_damaged_first_header_of_the_next_file_hides_nothing_but_its_batch(
    story: Story, sealed: bool
) -> None:
    story.note(waiting(0))
    first = story.batch()
    story.log.roll()
    damaged = story.batch(attributes=0)
    story.note(waiting(0))
    in_file = story.batch()
    if sealed:
        story.log.roll()
    story.note(waiting(0))
    last = story.batch()
    story.damage(damaged, place=16)  # its magic
    assert [each.offset for each in story.read().passed_over] == [damaged]
    assert story.ids() == [first, in_file, last]


def test_damage_that_need_not_be_read_is_not_counted(story: Story) -> None:
    """It lies before the position, behind the place that the offset index knows."""
    for size in (5_000, 4_000):  # the offset index has the second batch, and the one behind the damaged one
        story.put(build_batch([Record(0, NOW, b"k", b"x" * size)]))
    damaged = story.batch(attributes=0)
    assert story.follow().position == damaged + 1
    story.damage(damaged, place=16)  # its magic
    story.put(build_batch([Record(number, NOW, b"k", b"v") for number in range(2)]))
    story.note(waiting(0))
    last = story.batch()
    assert story.read().passed_over == []
    assert story.ids() == [last]


def test_a_bad_sector_that_need_not_be_read_holds_up_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.note(waiting(0))
    first = story.batch()
    story.follow()
    story.note(waiting(0))
    last = story.batch()
    end, pread = story.headers()[0].size, RealFile.pread

    def bad(self: RealFile, length: int, position: int) -> bytes:
        if HEADER_SIZE <= position < end:
            raise OSError(EIO, "Input/output error")
        return pread(self, HEADER_SIZE - position if position < HEADER_SIZE else length, position)

    monkeypatch.setattr(RealFile, "pread", bad)
    assert story.ids() == [first, last]


def test_a_damaged_note_hides_nothing_behind_it(story: Story) -> None:
    story.note(waiting(0))
    first = story.batch()
    damaged = story.note(waiting(0))
    story.batch()
    for _ in range(3):
        story.put(build_batch([Record(0, NOW, b"k", b"x" * 5_000)]))
    story.note(waiting(0))
    last = story.batch()
    story.damage(damaged, place=16)  # its magic
    assert [each.offset for each in story.read().passed_over] == [damaged]
    assert story.ids() == [first, last]
