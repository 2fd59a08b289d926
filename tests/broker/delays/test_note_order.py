"""An index made anew from what is left of a log says the same as the one that has read all of it.

Notes of transactions count at their markers, behind notes that follow them in the log; the log is cut by
where notes lie.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from forebay.storage.delays.index import DelayIndex, Ended, Entry, IndexState, Noted, Undecided
from forebay.storage.delays.index_in_memory import IndexInMemory
from forebay.wire.state.delay_notes import CancelKey, Change, NoMore, Waiting, build_note, note_value

TOPIC_ID = b"i" * 16
STEPS = 40
PRODUCERS = (1, 2)
KEYS = (None, b"k", b"l")


class Placed(NamedTuple):
    """A note, which lies at the first of its two offsets, or a marker."""

    offset: int
    entry: Entry


def new_index() -> DelayIndex:
    index = IndexInMemory()
    index.load(TOPIC_ID)
    return index


def waiting(index: DelayIndex) -> list[int]:
    return [each.id for each in index.after(-1, -1, count_max=1_000, bytes_max=1 << 20)]


class NotedLog:
    """The notes and markers of a log, and the index of a leader that follows it."""

    def __init__(self) -> None:
        self.placed: list[Placed] = []
        self.end = 0
        self.index = new_index()
        self.state: IndexState = self.index.apply((), 0, 0)

    @property
    def kept_from(self) -> int:
        oldest = self.state.oldest_home
        return self.end if oldest is None else min(oldest, self.end)

    def note(self, *changes: Change, producer: int | None = None, bound: bool = True) -> None:
        home = self.end
        if producer is None:
            self._put(Noted(home, changes, bound))
        else:
            value = note_value(bytes(build_note(changes, bound=True, timestamp=0)))
            assert value is not None
            self._put(Undecided(home, home + 1, producer, value))

    def schedule(self, key: bytes | None, producer: int | None = None) -> int:
        id_ = self.end + 1
        self.note(Waiting(id_, 1_000, 0, 0, key, b"body"), producer=producer)
        return id_

    def finish(self, producer: int, *, commit: bool) -> None:
        self._put(Ended(producer, commit))

    def say_again(self) -> None:
        """As a leader does at once."""
        ids = self.index.ended_out_of_order(count_max=1_000)
        if ids:
            self.note(NoMore(tuple(ids)), bound=False)
        assert self.state.out_of_order == 0

    def carry(self, ids: list[int]) -> None:
        self.note(*self.index.of_ids(ids, bytes_max=1 << 20), bound=False)

    def read_from(self, cut: int) -> list[int]:
        """What waits by an index that is made of the log from here on."""
        index = new_index()
        index.apply([each.entry for each in self.placed if each.offset >= cut], self.end, 0)
        return waiting(index)

    def _put(self, entry: Entry) -> None:
        self.placed.append(Placed(self.end, entry))
        self.end += 2
        self.state = self.index.apply([entry], self.end, 0)


def told(seed: int) -> NotedLog:
    """A story: messages are scheduled, ended, delivered and carried on, some of it in transactions."""
    chance, log = Random(seed), NotedLog()
    for _ in range(STEPS):
        producer = chance.choice((None, *PRODUCERS))
        key, pending = chance.choice(KEYS), waiting(log.index)
        what = chance.random()
        if what < 0.4:
            log.schedule(key, producer)
        elif what < 0.55 and key is not None:
            log.note(CancelKey(key), producer=producer)
        elif what < 0.65:
            log.note(NoMore((chance.randrange(log.end + 4),)), producer=producer)
        elif what < 0.75 and pending:
            log.note(NoMore((chance.choice(pending),)))  # delivered
        elif what < 0.85 and pending:
            log.carry(chance.sample(pending, chance.randint(1, len(pending))))
        else:
            log.finish(chance.choice(PRODUCERS), commit=chance.random() < 0.8)
        if chance.random() < 0.5:
            log.say_again()
    return log


def test_nothing_is_cut_that_an_index_made_anew_would_miss() -> None:
    for seed in range(60):
        log = told(seed)
        for cut in {log.kept_from, *Random(seed).choices(range(log.kept_from + 1), k=2)}:
            assert log.read_from(cut) == waiting(log.index), f"seed {seed}, the log begins at {cut}"


def test_after_any_cut_all_indexes_say_the_same() -> None:
    """DeleteRecords cuts where it is told to."""
    for seed in range(40):
        log = told(seed)
        log.say_again()
        cut = Random(seed).randrange(log.end)
        log.index.forget_below(cut)
        assert log.read_from(cut) == waiting(log.index), f"seed {seed}, the log begins at {cut}"


def test_what_a_transaction_has_ended_behind_its_note_is_said_again() -> None:
    log = NotedLog()
    log.note(CancelKey(b"k"), producer=1)
    log.schedule(b"k")
    assert log.kept_from == 0
    log.finish(1, commit=True)
    assert waiting(log.index) == []
    assert (log.state.out_of_order, log.kept_from) == (1, 0), "the note is needed until it is said again"
    log.say_again()
    assert log.kept_from == log.end
    assert log.read_from(2) == []


def test_what_was_ended_in_order_is_not_said_again() -> None:
    log = NotedLog()
    log.schedule(b"k")
    log.note(CancelKey(b"k"), producer=1)
    log.schedule(b"l", producer=1)
    log.note(CancelKey(b"l"), producer=1)
    log.finish(1, commit=True)
    assert waiting(log.index) == []
    assert (log.state.out_of_order, log.kept_from) == (0, log.end)


def test_what_lies_before_the_start_of_the_log_is_not_said_again() -> None:
    log = NotedLog()
    log.note(CancelKey(b"k"), producer=1)
    log.schedule(b"k")
    log.finish(1, commit=True)
    assert log.index.forget_below(2).out_of_order == 1
    assert log.index.forget_below(4).out_of_order == 0
