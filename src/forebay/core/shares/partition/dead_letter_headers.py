"""Dead letters: which of them go together, how a move names them, and their contents (KIP-1191).

A dead letter has headers that say where the record came from and why it was given up, as text. With
`errors.deadletterqueue.copy.record.enable` key, value and headers of the record are in it too, its own
headers first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from forebay.core.shares.partition.share_partition import DeadLetters
from forebay.core.shares.partition.state_transitions import DeadLetterCause
from forebay.wire.records import Header, Record
from forebay.wire.state import dead_letter_moves as wire
from forebay.wire.state.versioned import pack, unpack

RECORDS_MAX = 500
"""The most records of one move."""

_CODES = {DeadLetterCause.REJECTED: 0, DeadLetterCause.DELIVERY_LIMIT: 1, DeadLetterCause.UNREADABLE: 0}
"""Brokers before the third cause take it for the first."""
_CAUSES = {0: DeadLetterCause.REJECTED, 1: DeadLetterCause.DELIVERY_LIMIT}
_NOT_COPIED, _UNREADABLE = 1, 2

_MESSAGES = {
    DeadLetterCause.REJECTED: "Offset rejected by client.",
    DeadLetterCause.DELIVERY_LIMIT: "Offset delivery count exceeded the threshold.",
    DeadLetterCause.UNREADABLE: "Offset could not be read from the disk of the partition's leader.",
}


class NoCopy(Enum):
    """The reason why a dead letter has no copy of its record, in the words of the letter's message."""

    NOT_WANTED = ""
    DELETED = " The record was deleted before it could be copied."
    DAMAGED = " The record cannot be copied: its batch is damaged."
    TOO_LARGE = " The record is too large for the dead-letter topic."


class Origin(NamedTuple):
    """The source of dead letters: the share group and its partition."""

    topic: str
    partition: int
    group_id: str


class DeadLetterBatch(NamedTuple):
    """The dead letters of one move."""

    state_epoch: int
    letters: list[DeadLetters]
    leader_epoch: int = -1
    """The leader epoch in which the move was planned; -1 if it is unknown."""
    damaged: frozenset[int] = frozenset()
    """First offsets of the letters whose records cannot be copied, because their batch is damaged."""

    @property
    def record_count(self) -> int:
        return sum(each.last - each.first + 1 for each in self.letters)

    def pack(self) -> bytes:
        message = wire.DeadLetterMove(
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            ranges=[
                wire.DeadLetterRange(
                    first_offset=each.first,
                    last_offset=each.last,
                    delivery_count=each.delivery_count,
                    cause=_CODES[each.cause],
                    damage=self._damage(each),
                )
                for each in self.letters
            ],
        )
        return pack(message, message.MAX_VERSION)

    def _damage(self, letters: DeadLetters) -> int:
        if letters.cause is DeadLetterCause.UNREADABLE:
            return _UNREADABLE
        return _NOT_COPIED if letters.first in self.damaged else 0

    @staticmethod
    def unpack(entries: bytes) -> DeadLetterBatch:
        message = unpack(wire.DeadLetterMove, entries)
        return DeadLetterBatch(
            message.state_epoch,
            [_letters(each) for each in message.ranges],
            message.leader_epoch,
            frozenset(each.first_offset for each in message.ranges if each.damage),
        )


def _letters(of: wire.DeadLetterRange) -> DeadLetters:
    cause = DeadLetterCause.UNREADABLE if of.damage == _UNREADABLE else _CAUSES[of.cause]
    return DeadLetters(of.first_offset, of.last_offset, of.delivery_count, cause)


def leading(letters: Iterable[DeadLetters]) -> tuple[list[DeadLetters], bool]:
    """The first letters that are all readable, or all unreadable; and True if they are unreadable."""
    for is_unreadable, alike in groupby(letters, lambda each: each.cause is DeadLetterCause.UNREADABLE):
        return list(alike), is_unreadable
    return [], False


def first_of(letters: Iterable[DeadLetters], records_max: int = RECORDS_MAX) -> list[DeadLetters]:
    """The first letters, with as many records as a move may have."""
    chosen: list[DeadLetters] = []
    for each in letters:
        if records_max <= 0:
            break
        chosen.append(each._replace(last=min(each.last, each.first + records_max - 1)))
        records_max -= chosen[-1].last - chosen[-1].first + 1
    return chosen


def only(letters: Iterable[DeadLetters], offsets: Sequence[int]) -> list[DeadLetters]:
    """The letters at these offsets, which rise."""
    kept: list[DeadLetters] = []
    wanted = iter(offsets)
    offset = next(wanted, None)
    for each in letters:
        first: int | None = None
        while offset is not None and offset <= each.last:
            if offset >= each.first:
                if first is not None and kept[-1].last == offset - 1:
                    kept[-1] = kept[-1]._replace(last=offset)
                else:
                    first = offset
                    kept.append(each._replace(first=offset, last=offset))
            offset = next(wanted, None)
    return kept


def below(letters: Iterable[DeadLetters], end_offset: int) -> list[DeadLetters]:
    """The letters before this offset."""
    return [each._replace(last=min(each.last, end_offset - 1)) for each in letters if each.first < end_offset]


def overlap(letters: Sequence[DeadLetters], waiting: Sequence[DeadLetters]) -> Iterator[tuple[int, int]]:
    """Yields the ranges of offsets that are in both. Both are sorted, so one pass is enough."""
    mine, other = 0, 0
    while mine < len(letters) and other < len(waiting):
        first = max(letters[mine].first, waiting[other].first)
        last = min(letters[mine].last, waiting[other].last)
        if first <= last:
            yield first, last
        if letters[mine].last <= waiting[other].last:
            mine += 1
        else:
            other += 1


def dead_letter(
    number: int, offset: int, letter: DeadLetters, origin: Origin, copied: Record | NoCopy, now_ms: int
) -> Record:
    """The record to append as the one of this number in its batch. Without a copy it has headers only."""
    why_none = copied.value if isinstance(copied, NoCopy) else ""
    about: list[Header] = [
        ("__dlq.errors.topic", origin.topic.encode()),
        ("__dlq.errors.partition", str(origin.partition).encode()),
        ("__dlq.errors.offset", str(offset).encode()),
        ("__dlq.errors.group", origin.group_id.encode()),
        ("__dlq.errors.delivery.count", str(letter.delivery_count).encode()),
        ("__dlq.errors.message", f"{_MESSAGES[letter.cause]}{why_none}".encode()),
    ]
    if isinstance(copied, NoCopy):
        return Record(number, now_ms, None, None, about)
    return Record(number, now_ms, copied.key, copied.value, [*copied.headers, *about])
