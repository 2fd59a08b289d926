"""Dead letters: the topics that take them, the newest letters with their reasons, and redrives."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from forebay.console.messages.showing import mask_of
from forebay.console.watch.snapshot import Snapshot
from forebay.console.web.asking import Ask, Change, NotThere, WrongInput
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.operations.client import CommandError
from forebay.operations.dead_letters.exactly_once import redrive_letters
from forebay.operations.dead_letters.letters import (
    Filter,
    Letter,
    json_contents,
    json_row,
    place_of,
    source_of,
)
from forebay.operations.dead_letters.positions import last_committed
from forebay.operations.dead_letters.reading import read_letter, read_letters
from forebay.operations.dead_letters.redrive_pass import RedriveReport
from forebay.operations.dead_letters.topics import dead_letter_topics, uncommitted_readers
from forebay.operations.messages.positions import parse_time
from forebay.wire.records import Record

PAGE = Page()

NEWEST_MAX = 5_000
"""A page reads this many letters at most, the newest. The filter is for those."""
_SHOWN_MAX = 200
_REASONS_MAX = 12


@PAGE.get("/dead-letters")
def topics(ask: Ask) -> dict[str, Any]:
    """The topics that take dead letters, whether they have some or not."""
    picture = ask.cluster.snapshot()
    found = _found(ask, picture)
    return page_of(
        ask,
        sorted(found),
        name=lambda name: name,
        columns={
            "name": lambda name: name,
            "letters": lambda name: _messages(picture, name),
            "rate": lambda name: picture.topics[name].rate if name in picture.topics else None,
        },
        default="-letters",
        show=lambda name: {
            "name": name,
            "letters": _messages(picture, name),
            "rate": picture.topics[name].rate if name in picture.topics else None,
            "partitions": len(picture.topics[name].partitions) if name in picture.topics else 0,
            "groups": found[name],
            "exists": name in picture.topics,
        },
    )


def _found(ask: Ask, picture: Snapshot) -> dict[str, list[str]]:
    shares = [group.name for group in picture.groups.values() if group.kind == "share"]
    plain = [name for name, topic in picture.topics.items() if not topic.internal]
    with ask.cluster.connections() as connections:
        return dead_letter_topics(connections.any(), plain, shares)


def _messages(picture: Snapshot, name: str) -> int | None:
    return picture.topics[name].messages if name in picture.topics else 0


@PAGE.get("/dead-letters/{topic}/letters")
def letters(ask: Ask) -> dict[str, Any]:
    """The newest letters. The query: group, source, reason, since."""
    topic = _topic(ask)
    with closing(read_letters(ask.cluster.client, topic, filter_of(ask.query), NEWEST_MAX)) as reading:
        found = list(reading)
    found.sort(key=lambda letter: (-letter.line.timestamp_ms, letter.line.partition, -letter.line.offset))
    shown = found[:_SHOWN_MAX]
    moved = last_committed(ask.cluster.client, topic, {letter.line.partition for letter in shown})
    kept = ask.cluster.snapshot().topics[topic].messages
    return {
        "rows": [{**_row(letter), "redriven": _is_moved(moved, letter)} for letter in shown],
        "matching": len(found),
        "kept": kept,
        "read_all": (kept or 0) <= NEWEST_MAX,
        "reasons": _counted(letter.reason or "no reason given" for letter in found),
        "groups": _counted(letter.group or "unknown" for letter in found),
        "sources": _counted(letter.topic for letter in found),
    }


def _is_moved(moved: Mapping[int, Any], letter: Letter) -> bool:
    known = moved.get(letter.line.partition)
    return known is not None and bool(known.is_moved(letter.line.offset))


def _counted(names: Any) -> list[dict[str, Any]]:
    return [{"name": name, "count": count} for name, count in Counter(names).most_common(_REASONS_MAX)]


def _row(letter: Letter) -> dict[str, Any]:
    return {"at": letter.at, **json_row(letter)}


@PAGE.get("/dead-letters/{topic}/letter")
def letter(ask: Ask) -> dict[str, Any]:
    """One letter with key, value and headers of its message. The query: at."""
    try:
        found = read_letter(ask.cluster.client, _topic(ask), *place_of(ask.text("at")))
    except CommandError as error:
        raise NotThere(str(error)) from None
    found = _masked(ask, found)
    return {"at": found.at, **json_row(found), **json_contents(found)}


def _masked(ask: Ask, letter: Letter) -> Letter:
    """Hides what this user may not see of the topic that the message came from."""
    mask = mask_of(ask.cluster, letter.topic, ask.user)
    if mask is None:
        return letter
    line = letter.line
    seen = mask(Record(line.offset, line.timestamp_ms, line.key, line.value, letter.headers))
    return letter._replace(
        line=line._replace(key=seen.key, value=seen.value, headers=()), headers=tuple(seen.headers)
    )


@PAGE.get("/dead-letters/{topic}/redrive")
def preview(ask: Ask) -> dict[str, Any]:
    """Preview what a redrive would move, and what it would leave and why. Changes nothing."""
    outcome = _redrive(ask, ask.query, execute=False)
    to = _to(ask.query)
    return {
        "moved": len(outcome.moved),
        "rows": [
            {**_row(each), "to": to or f"{each.topic}-{each.partition}"}
            for each in outcome.moved[:_SHOWN_MAX]
        ],
        "left": len(outcome.left),
        "left_rows": [{**_row(each.letter), "why": each.why} for each in outcome.left[:_SHOWN_MAX]],
        "notes": uncommitted_readers(ask.cluster.admin(), outcome.moved) if to is None else [],
    }


@PAGE.change("/dead-letters/{topic}/redrive")
def redrive(ask: Ask) -> Change:
    """The body: the same filter, `at` with blanks, `limit`, `to`, `include_old`."""
    topic, to = _topic(ask), _to(ask.body)
    outcome = _redrive(ask, ask.body, execute=False)
    if not outcome.moved:
        raise WrongInput("no letter that has not been moved yet is like that", "filter")
    count = f"{len(outcome.moved):,} dead letter{'' if len(outcome.moved) == 1 else 's'}"
    places = Counter(to or each.topic for each in outcome.moved)
    return Change(
        question=f"Move {count} of {topic} back?",
        details=[
            *(f"{number:,} to {place}" for place, number in places.most_common(8)),
            *([f"{len(outcome.left):,} are left, as shown"] if outcome.left else ()),
            "All groups of these topics get the messages, with new offsets. Each is moved once.",
        ],
        done=f"moved {count} of {topic}",
        command=["dead-letter", "redrive", topic, *_arguments(ask.body), "--execute"],
        act=lambda: _told(topic, _redrive(ask, ask.body, execute=True)),
    )


def _told(topic: str, outcome: RedriveReport) -> str:
    count = len(outcome.moved)
    left = f"; {len(outcome.left):,} could not be moved" if outcome.left else ""
    return f"moved {count:,} dead letter{'' if count == 1 else 's'} of {topic}{left}"


def _redrive(ask: Ask, given: Mapping[str, Any], *, execute: bool) -> RedriveReport:
    limit = str(given.get("limit") or "")
    if limit and not (limit.isascii() and limit.isdigit() and int(limit)):
        raise WrongInput("this is no number above 0", "limit")
    topic, to = _topic(ask), _to(given)
    if to == topic:
        raise WrongInput("this is the dead-letter topic itself", "to")
    if to is not None and to not in ask.cluster.snapshot().topics:
        raise WrongInput(f"there is no topic {to}", "to")
    return redrive_letters(
        ask.cluster.client,
        topic,
        wanted=filter_of(given),
        limit=int(limit) if limit else None,
        include_old=given.get("include_old") in (True, "1"),
        to=to,
        execute=execute,
    )


# -- the choice of letters ---------------------------------------------------------------------------------


def filter_of(given: Mapping[str, Any]) -> Filter:
    """From a query or a body."""
    source, partitions = _checked("source", given, source_of)
    return Filter(
        group=_text(given, "group"),
        source=source,
        source_partitions=partitions,
        reason=_text(given, "reason"),
        since_ms=_checked("since", given, _time),
        at=frozenset(_checked("at", given, lambda text: [place_of(each) for each in (text or "").split()])),
    )


def _checked(name: str, given: Mapping[str, Any], read: Any) -> Any:
    try:
        return read(_text(given, name))
    except CommandError as error:
        raise WrongInput(str(error), name) from None


def _text(given: Mapping[str, Any], name: str) -> str | None:
    return str(given.get(name) or "").strip() or None


def _time(text: str | None) -> int | None:
    return None if text is None else parse_time(text, time.time_ns() // 1_000_000)


def _arguments(given: Mapping[str, Any]) -> list[str]:
    """The same choice on the command line."""
    arguments = [
        part
        for name in ("group", "source", "reason", "since", "limit", "to")
        if (text := _text(given, name)) is not None
        for part in (f"--{name}", text)
    ]
    arguments += [part for each in (_text(given, "at") or "").split() for part in ("--at", each)]
    return arguments + (["--include-old"] if given.get("include_old") in (True, "1") else [])


def _to(given: Mapping[str, Any]) -> str | None:
    return _text(given, "to")


def _topic(ask: Ask) -> str:
    name = ask.path["topic"]
    if name not in ask.cluster.snapshot().topics:
        raise NotThere(f"there is no topic {name}, or this user may not see it")
    return name
