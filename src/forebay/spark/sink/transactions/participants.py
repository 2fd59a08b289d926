"""The participants of a batch: the names of tasks' transactions, and the decision that lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from forebay.errors import ForebayError
from forebay.lazy import dataclass
from forebay.spark.sink.producer import Identity
from forebay.wire.messages.end_txn import FURTHER_MAX

METADATA_BYTES_MAX = 4000
"""Of an offset; brokers allow 4096 by default."""
PIECES_MAX = 128
SLOT = 0
"""The partition under which a decision is kept: every topic has it."""
ONE_PIECE, SEVERAL_PIECES = ";", ":"
"""Behind the number of pieces. Earlier versions wrote the first for any number of them."""
OWN_SPACE = "\u00a0"
"""A no-break space, in names that are made out of a user's. It is not printable: no user's name has it."""
RUN_CHARACTERS = 12
"""Hexadecimal digits; the run of a stream has the mark of its sink behind them, which are as many."""

_NAMED_MAX = 5
_LABEL = re.compile(
    rf"(?P<run>([0-9a-f]{{{RUN_CHARACTERS}}}){{1,2}})-\d+\.(?P<turn>[01])(\.\d+)?(~[0-9a-z]+)?"
)
_ID = re.compile(rf"spark-(?P<name>.+)-(?P<label>{_LABEL.pattern})", re.DOTALL)


class Participant(NamedTuple):
    """The open transaction of a task, and how many rows are in it."""

    task: int
    label: str
    """It tells the transactional id from the others of the same name."""
    producer_id: int
    epoch: int
    rows: int

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.epoch)


class Attempt(NamedTuple):
    """One try of one task at writing its part of a batch."""

    name: str
    run: str
    """Which start of the query, or which write; see RUN_CHARACTERS."""
    batch_id: int
    task: int
    retry: int = 0
    """How many attempts came before this one."""
    salt: str = ""
    """Moves the transactional id to the coordinator that is wanted."""
    query: str = ""
    """The id in the checkpoint, of a stream that has another name than this."""

    @property
    def label(self) -> str:
        """Differs from that of other runs, of other tasks, of other attempts, and of the next batch."""
        retry = f".{self.retry}" if self.retry else ""
        salt = f"~{self.salt}" if self.salt else ""
        return f"{self.run}-{self.task}.{turn_of(self.batch_id)}{retry}{salt}"

    @property
    def transactional_id(self) -> str:
        return transactional_id_of(self.name, self.label)


def run_in(label: str) -> str:
    """The run that a label names; empty if it is the label of no attempt."""
    parts = _LABEL.fullmatch(label)
    return parts["run"] if parts else ""


def turn_of(batch_id: int) -> int:
    return batch_id & 1


def turn_in(label: str) -> int | None:
    """The turn that a label names; None if it is the label of no attempt."""
    parts = _LABEL.fullmatch(label)
    return int(parts["turn"]) if parts else None


def group_of(name: str, piece: int = 0) -> str:
    """The group that keeps a decision, or a further piece of it; also the driver's transactional id."""
    return f"spark-sink-{name}{OWN_SPACE}#{piece}" if piece else f"spark-sink-{name}"


def earlier_group_of(name: str, piece: int) -> str:
    """The group of a further piece as earlier versions named it, which is also the group of another name."""
    return f"spark-sink-{name}.{piece}"


def name_for_topic(stream_id: str, topic: str) -> str:
    """The name of what a stream writes to one topic. Its ids begin as those of the stream do."""
    return f"{stream_id}-{OWN_SPACE}{topic}"


def names_for_topics(stream_id: str, groups: Iterable[str]) -> list[str]:
    """The names of `name_for_topic` that have one of these groups."""
    start = group_of(name_for_topic(stream_id, ""))
    topics = {group.removeprefix(start).split(OWN_SPACE)[0] for group in groups if group.startswith(start)}
    return [name_for_topic(stream_id, topic) for topic in sorted(topics)]


def transactional_id_of(name: str, label: str) -> str:
    return f"spark-{name}-{label}"


def marked(transactional_id: str, mark: str) -> tuple[str, str] | None:
    """Name and label of an attempt whose run ends with this mark; None for any other transactional id."""
    parts = _ID.fullmatch(transactional_id)
    if parts is None or not parts["run"].endswith(mark):
        return None
    return parts["name"], parts["label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    batch_id: int
    topics: tuple[str, ...]
    """Those that the batch was written to, sorted; the offset is kept under each of them."""
    participants: tuple[Participant, ...]
    query: str = ""
    """The id in the checkpoint, of a stream that has another name than this."""
    repeated: str = ""
    """The last run that has repeated a write in foreachBatch, and has found it decided."""

    def of_task(self, task: int) -> Participant | None:
        return next((each for each in self.participants if each.task == task), None)

    def repaired(self, again: Iterable[Participant]) -> Decision:
        """The same with these participants in the place of those of the same tasks."""
        new = {each.task: each for each in again}
        return replace(self, participants=tuple(new.get(each.task, each) for each in self.participants))

    def text(self) -> str:
        named = [self.query, self.repeated] if self.repeated else [self.query] if self.query else []
        return json.dumps([*named, *self.participants], separators=(",", ":"))


class Settled(NamedTuple):
    """The decision that holds for a batch."""

    decision: Decision
    ended: frozenset[Participant] = frozenset()
    """Participants that were committed in one step with the decision."""


def parsed(batch_id: int, topics: Iterable[str], text: str) -> Decision:
    found = json.loads(text)
    query, repeated, *_ = *(each for each in found if isinstance(each, str)), "", ""
    participants = tuple(Participant(*each) for each in found if not isinstance(each, str))
    return Decision(
        batch_id=batch_id, topics=tuple(topics), participants=participants, query=query, repeated=repeated
    )


def named_tasks(participants: Sequence[Participant]) -> str:
    """task 3, 5, 6 and 12 others"""
    others = len(participants) - _NAMED_MAX
    names = ", ".join(str(each.task) for each in participants[:_NAMED_MAX])
    return f"task {names}" + (f" and {others} others" if others > 0 else "")


def pieces_of(text: str) -> list[str]:
    """The text in parts that fit, the first of which begins with how many there are."""
    size = METADATA_BYTES_MAX - len(f"{PIECES_MAX};")
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    if len(parts) > PIECES_MAX:
        raise ForebayError(
            "an exactly-once batch has too many tasks to commit them together: coalesce() them to"
            f" {FURTHER_MAX}"
        )
    mark = ONE_PIECE if len(parts) == 1 else SEVERAL_PIECES
    return [f"{len(parts)}{mark}{parts[0]}", *parts[1:]]
