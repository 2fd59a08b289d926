"""The timeline: elections, failures of brokers, and what administrators changed."""

from __future__ import annotations

import time
from typing import Any

from forebay.console.watch.timeline import TimelineEvent
from forebay.console.web.asking import Ask
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.operations.client import CommandError
from forebay.operations.cluster.failovers import read_failovers
from forebay.wire.messages.describe_activity import BrokerEvent
from forebay.wire.messages.describe_failovers import DescribedFailover

PAGE = Page()

_MARKS_MAX = 1_000
_LATEST_SHOWN = 5


@PAGE.get("/timeline")
def timeline(ask: Ask) -> dict[str, Any]:
    """The query: those of a list; `kinds` with commas; `hours`, 0 for all that is known."""
    now_ms = time.time_ns() // 1_000_000
    hours = ask.number("hours", 0, most=24 * 366)
    since_ms = now_ms - hours * 3_600_000 if hours else 0
    kinds = set(ask.text("kinds").split(",")) - {""}
    events = [each for each in _all(ask) if each.event.at_ms >= since_ms]
    chosen = [each for each in events if not kinds or each.event.kind in kinds]
    listed = page_of(
        ask,
        chosen,
        name=lambda each: f"{each.event.what} {each.event.principal} {each.event.api} broker {each.broker}",
        columns={"at": lambda each: each.event.at_ms},
        default="-at",
        show=_shown,
    )
    return {
        **listed,
        "now_ms": now_ms,
        "since_ms": since_ms or min((each.event.at_ms for each in events), default=now_ms),
        "marks": [[each.event.at_ms, each.event.kind, _is_bad(each.event)] for each in events[-_MARKS_MAX:]],
    }


@PAGE.get("/timeline/latest")
def latest(ask: Ask) -> dict[str, Any]:
    """The last few, for the overview: without asking a broker."""
    ask.cluster.snapshot()
    return {
        "rows": [_shown(each) for each in ask.cluster.watcher.timeline.events()[: -_LATEST_SHOWN - 1 : -1]]
    }


def _all(ask: Ask) -> list[TimelineEvent]:
    ask.cluster.snapshot()
    events = [*ask.cluster.watcher.timeline.events(), *map(_failover, _failovers(ask))]
    return sorted(events, key=lambda each: each.event.at_ms)


def _failovers(ask: Ask) -> list[DescribedFailover]:
    try:
        with ask.cluster.connections() as connections:
            return read_failovers(connections.any())
    except CommandError:  # a user without the right to see them
        return []


def _failover(found: DescribedFailover) -> TimelineEvent:
    total_ms = found.detect_ms + found.fence_ms + found.elect_ms + found.announce_ms
    event = BrokerEvent(
        at_ms=found.at_ms,
        kind="failover",
        what=f"broker {found.broker} was found dead; led again after {total_ms:,} ms",
        partitions=found.partitions,
    )
    return TimelineEvent(found.by, event)


def _is_bad(event: BrokerEvent) -> bool:
    return event.kind == "failover" or event.what.endswith(" left")


def _shown(told: TimelineEvent) -> dict[str, Any]:
    event = told.event
    return {
        "at": event.at_ms,
        "kind": event.kind,
        "broker": told.broker,
        "what": event.what,
        "who": event.principal,
        "client": event.client,
        "api": event.api,
        "failed": "" if event.result in ("", "NONE") or event.result.endswith(" NONE") else event.result,
        "partitions": event.partitions,
        "bad": _is_bad(event),
    }
