"""One pass over a dead letter topic: which letters are moved back, as which records, and which are left.

Nothing here is final. A batch of moves and the progress of the pass are given to `commit` together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

from forebay.client import Record
from forebay.lazy import dataclass
from forebay.operations.dead_letters.letters import Filter, Letter, letter_of
from forebay.operations.dead_letters.progress import Progress
from forebay.operations.messages.message_formats import Line


class Left(NamedTuple):
    """A selected letter that could not be moved."""

    letter: Letter
    why: str


class Move(NamedTuple):
    letter: Letter
    record: Record


@dataclass(slots=True)
class RedriveReport:
    moved: list[Letter] = field(default_factory=list)
    """The letters that were moved, or would be."""
    left: list[Left] = field(default_factory=list)


class Destinations:
    """The targets of letters: their sources, or one topic for all."""

    def __init__(self, partitions: Mapping[str, Sequence[int]], to: str | None) -> None:
        self._partitions = partitions
        self._to = to

    def problem(self, letter: Letter) -> str | None:
        if self._to is not None or self.has_source(letter):
            return None
        what = f"topic {letter.topic}" if letter.topic not in self._partitions else "such partition"
        return f"there is no {what} any more: give a topic with --to"

    def has_source(self, letter: Letter) -> bool:
        return letter.partition in self._partitions.get(letter.topic, ())

    def place(self, letter: Letter) -> tuple[str, int | None]:
        """Another topic may have other partitions: there the key decides."""
        return (letter.topic, letter.partition) if self._to is None else (self._to, None)


class ReadOriginal(Protocol):
    def __call__(self, letter: Letter) -> Line | None:
        """The record at the letter's source; None if it no longer exists."""


class Commit(Protocol):
    def __call__(self, moves: Sequence[Move], progress: Mapping[int, Progress]) -> None:
        """Commits moves, and the progress of their partitions with them."""


@dataclass(slots=True, kw_only=True)
class Redrive:
    wanted: Filter
    limit: int | None
    include_old: bool
    destinations: Destinations
    progress: Mapping[int, Progress]
    """By partition of the dead-letter topic."""
    read_original: ReadOriginal
    commit: Commit
    outcome: RedriveReport = field(default_factory=RedriveReport)

    def run(self, batches: Iterable[Sequence[Line]]) -> RedriveReport:
        for lines in batches:
            moves: list[Move] = []
            for line in lines:
                if self._has_enough(moves):
                    break
                self._look_at(line, moves)
            if moves:
                self.commit(moves, self.progress)
                self.outcome.moved += [_emptied(each.letter) for each in moves]
            if self._has_enough(()):
                break
        return self.outcome

    def _has_enough(self, moves: Sequence[Move]) -> bool:
        return self.limit is not None and len(self.outcome.moved) + len(moves) >= self.limit

    def _look_at(self, line: Line, moves: list[Move]) -> None:
        progress = self.progress[line.partition]
        progress.read_to = line.offset + 1
        letter = letter_of(line)
        if letter is None or progress.is_moved(line.offset):
            return
        if not self.wanted.matches(letter):
            progress.leave(line.offset)
            return
        record = self._record(letter, progress)
        if isinstance(record, str):
            progress.leave(line.offset)
            self.outcome.left.append(Left(_emptied(letter), record))
        else:
            progress.moved.add(line.offset)
            moves.append(Move(letter, record))

    def _record(self, letter: Letter, progress: Progress) -> Record | str:
        """The record to send, or the reason why there is none."""
        if letter.line.offset < progress.unsure_below and not self.include_old:
            return "it is older than positions are kept and may have been moved before: see --include-old"
        if problem := self.destinations.problem(letter):
            return problem
        topic, partition = self.destinations.place(letter)
        key, value, headers = letter.line.key, letter.line.value, letter.headers
        if not letter.is_copy:
            original = self.read_original(letter) if self.destinations.has_source(letter) else None
            if original is None:
                return "it has no copy of the message, which is not at its source any more"
            key, value, headers = original.key, original.value, original.headers
        return Record(topic=topic, partition=partition, key=key, value=value, headers=headers)


def _emptied(letter: Letter) -> Letter:
    """The letter without contents, for the report: these may be large."""
    return letter._replace(line=letter.line._replace(key=None, value=None, headers=()), headers=())
