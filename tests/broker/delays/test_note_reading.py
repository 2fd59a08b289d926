"""Notes are read from the log as they count: with their batch, in committed transactions, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.broker.delays.note_reading import NotesRead, read_notes
from forebay.core.partition.batch_rules import place
from forebay.storage.delay_index import DelayIndex, DelayIndexFiles, IndexState
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import (
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

    def end(self, producer_id: int, *, commit: bool) -> None:
        self.put(build_marker(EndTxnMarker(producer_id, 0, commit, 0), timestamp=NOW))

    def read(self, end_offset: int | None = None) -> NotesRead:
        return read_notes(
            self.log.stretches(self.state.position),
            position=self.state.position,
            leader_epoch=self.state.leader_epoch,
            end_offset=self.log.end_offset if end_offset is None else end_offset,
        )

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
