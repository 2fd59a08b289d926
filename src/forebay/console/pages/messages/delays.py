"""Delayed messages: what waits in each topic and until when; firing and cancelling it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

from forebay.console.messages.masking import Mask
from forebay.console.messages.showing import mask_of
from forebay.console.watch.snapshot import Snapshot
from forebay.console.web.asking import Ask, Change, NotThere, WrongInput
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.errors import ErrorCode
from forebay.operations.client import CommandError
from forebay.operations.delays.delay_admin import DelayAdmin, ScheduleId, schedule_id
from forebay.operations.delays.delay_lists import all_waiting, alter_waiting, in_due_order, json_row
from forebay.operations.messages.message_formats import json_bytes, json_headers
from forebay.wire.messages.alter_delays import CANCEL, FIRE
from forebay.wire.messages.describe_delays import (
    DelayedHeader,
    DelayedMessage,
    DescribeDelaysRequest,
    DescribeDelaysResponse,
)
from forebay.wire.records import Record

PAGE = Page()

_SHOWN_MAX = 200
_HORIZONS = (
    ("within a minute", 60),
    ("within an hour", 3_600),
    ("within a day", 86_400),
    ("within a week", 604_800),
    ("later", None),
)
_COUNTED_MAX = 5_000
"""Of a topic: so many messages are looked at to tell when they are due."""


@PAGE.get("/delays")
def topics(ask: Ask) -> dict[str, Any]:
    """The topics in which messages wait; only those that the search finds are asked for."""
    picture = ask.cluster.snapshot()
    pending = _pending(ask, picture)
    return page_of(
        ask,
        sorted(pending),
        name=lambda name: name,
        columns={
            "name": lambda name: name,
            "waiting": lambda name: pending[name][0],
            "due": lambda name: pending[name][1],
        },
        default="due",
        show=lambda name: {"name": name, "waiting": pending[name][0], "due_ms": pending[name][1]},
    )


def _pending(ask: Ask, picture: Snapshot) -> dict[str, tuple[int, int]]:
    """Count the messages that wait in each topic, and say when the first of them is due."""
    found: dict[str, tuple[int, int]] = {}
    with ask.cluster.connections() as connections:
        served = {
            each.id: connections.at(each.address)
            for each in picture.brokers
            if each.answers and connections.at(each.address).serves(DescribeDelaysRequest)
        }
        without = ask.cluster.without_delays
        for topic in picture.topics.values():
            if topic.internal or without.has(topic.id):
                continue
            for part in topic.partitions:
                if part.leader not in served:
                    continue
                request = DescribeDelaysRequest(topic=topic.name, partition=part.index, limit=1)
                answer = served[part.leader].ask(request, DescribeDelaysResponse)
                if answer.error_code == ErrorCode.INVALID_REQUEST:  # its topic takes none
                    without.add(topic.id)
                    break
                if not answer.error_code and answer.pending:
                    count, due_ms = found.get(topic.name, (0, 2**63 - 1))
                    first_ms = min((each.due_ms for each in answer.messages), default=due_ms)
                    found[topic.name] = count + answer.pending, min(due_ms, first_ms)
    return found


@PAGE.get("/delays/{topic}")
def delays(ask: Ask) -> dict[str, Any]:
    """The messages that are due next, and how many are due when."""
    topic = _topic(ask)
    with DelayAdmin(ask.cluster.client, topic) as admin:
        partitions = admin.partitions()
        pending = sum(admin.pending(each) for each in partitions)
        waiting = list(islice(in_due_order(admin, partitions, _SHOWN_MAX), _COUNTED_MAX))
    now_ms = time.time_ns() // 1_000_000
    mask = mask_of(ask.cluster, topic, ask.user)
    return {
        "topic": topic,
        "waiting": pending,
        "now_ms": now_ms,
        "rows": [json_row(number, _masked(mask, each)) for number, each in waiting[:_SHOWN_MAX]],
        "due": _horizons([message.due_ms - now_ms for _, message in waiting]),
        "counted": len(waiting),
    }


def _horizons(left_ms: Sequence[int]) -> list[dict[str, Any]]:
    counts = [0] * len(_HORIZONS)
    for each in left_ms:
        at = next(at for at, (_, end_s) in enumerate(_HORIZONS) if end_s is None or each <= end_s * 1000)
        counts[at] += 1
    return [{"name": name, "count": count} for (name, _), count in zip(_HORIZONS, counts, strict=True)]


@PAGE.get("/delays/{topic}/message")
def message(ask: Ask) -> dict[str, Any]:
    """One waiting message with key, value and headers. The query: id."""
    try:
        wanted = schedule_id(ask.text("id"))
        with DelayAdmin(ask.cluster.client, _topic(ask)) as admin:
            found = admin.message(wanted)
    except CommandError as error:
        raise NotThere(str(error)) from None
    found = _masked(mask_of(ask.cluster, ask.path["topic"], ask.user), found)
    headers = [(each.key, each.value) for each in found.headers]
    return {**json_row(wanted, found), **json_bytes("value", found.value), "headers": json_headers(headers)}


def _masked(mask: Mask | None, message: DelayedMessage) -> DelayedMessage:
    """Hides what this user may not see."""
    if mask is None:
        return message
    headers = [(each.key, each.value) for each in message.headers]
    seen = mask(Record(message.id, message.due_ms, message.key, message.value, headers))
    named = mask(Record(message.id, message.due_ms, message.schedule_key, None))
    return DelayedMessage(
        id=message.id,
        due_ms=message.due_ms,
        scheduled_ms=message.scheduled_ms,
        schedule_key=named.key,
        key=seen.key,
        value=seen.value,
        value_size=message.value_size,
        headers=[DelayedHeader(key=name, value=value) for name, value in seen.headers],
    )


@PAGE.change("/delays/{topic}/fire")
def fire(ask: Ask) -> Change:
    """The body: ids, or all."""
    return _change(ask, "fire", FIRE, "Deliver {} of {} now?", "They are appended to their topic at once.")


@PAGE.change("/delays/{topic}/cancel")
def cancel(ask: Ask) -> Change:
    """The body: ids, or all."""
    return _change(ask, "cancel", CANCEL, "Cancel {} of {}?", "They are never delivered, and are lost.")


def _change(ask: Ask, verb: str, action: int, question: str, detail: str) -> Change:
    topic, everything = _topic(ask), ask.body.get("all") is True
    ids = [] if everything else _ids(ask)
    what = "everything that waits" if everything else f"{len(ids):,} message{'' if len(ids) == 1 else 's'}"
    done = "fired" if action == FIRE else "cancelled"

    def act() -> str:
        with DelayAdmin(ask.cluster.client, topic) as admin:
            wanted = all_waiting(admin) if everything else ids
            count, problem = alter_waiting(admin, action, wanted, everything=everything)
        if problem is not None:
            raise problem
        return f"{done} {count:,} message{'' if count == 1 else 's'} of {topic}"

    return Change(
        question=question.format(what, topic),
        details=[detail],
        done=f"{done} {what} of {topic}",
        command=["delay", verb, topic, *(["--all", "--yes"] if everything else map(str, ids))],
        act=act,
        danger=everything and action == CANCEL,
        name=topic,
        verb="Cancel them" if action == CANCEL else "",
    )


def _ids(ask: Ask) -> list[ScheduleId]:
    given = ask.body.get("ids", ())
    if not isinstance(given, list) or not given:
        raise WrongInput("choose messages first", "ids")
    try:
        return [schedule_id(str(each)) for each in given]
    except CommandError as error:
        raise WrongInput(str(error), "ids") from None


def _topic(ask: Ask) -> str:
    name = ask.path["topic"]
    if name not in ask.cluster.snapshot().topics:
        raise NotThere(f"there is no topic {name}, or this user may not see it")
    return name
