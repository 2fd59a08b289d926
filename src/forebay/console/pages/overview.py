"""The overview: brokers, throughput, lag, what is wrong now and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from forebay.console.watch.snapshot import ActivitySeen, Snapshot
from forebay.console.web.asking import Ask
from forebay.console.web.page import Page

PAGE = Page()

_DISK_FREE_SHARE_MIN = 0.1
_DISK_FREE_SHARE_SEVERE = 0.03
_NAMED_MAX = 3
_LARGEST = 5


class Problem(NamedTuple):
    severity: str
    """severe or warning."""
    title: str
    advice: str
    link: str = ""
    """A view of the console that shows more."""


@PAGE.get("/overview")
def overview(ask: Ask) -> dict[str, Any]:
    picture = ask.cluster.snapshot()
    shown = [topic for topic in picture.topics.values() if not topic.internal]
    rates = [topic.rate for topic in shown if topic.rate is not None]
    sizes = [broker.disk_bytes for broker in picture.brokers if broker.disk_bytes is not None]
    lags = [group.lag for group in picture.groups.values() if group.lag is not None]
    return {
        "cluster_id": picture.cluster_id,
        "time": picture.time_s,
        "brokers": broker_rows(picture),
        "topics": len(shown),
        "partitions": sum(len(topic.partitions) for topic in shown),
        "messages": sum(topic.messages or 0 for topic in shown),
        "groups": len(picture.groups),
        "rate": sum(rates) if rates else None,
        "produce": None if picture.activity is None else _produce_times(picture.activity),
        "size": sum(sizes) if sizes else None,
        "lag": sum(lags),
        "problems": [problem._asdict() for problem in problems(picture)],
        "busiest": [
            {"name": topic.name, "rate": topic.rate}
            for topic in sorted(shown, key=lambda each: -(each.rate or 0))[:_LARGEST]
            if topic.rate
        ],
        "lagging": [
            {"name": group.name, "kind": group.kind, "lag": group.lag}
            for group in sorted(picture.groups.values(), key=lambda each: -(each.lag or 0))[:_LARGEST]
            if group.lag
        ],
        "hidden": picture.hidden,
    }


@PAGE.get("/history")
def history(ask: Ask) -> dict[str, list[float | None]]:
    """Series for plots, by their names, a line each: names of groups may have commas."""
    names = [name for name in ask.text("series").split("\n") if name]
    return ask.cluster.watcher.read_history(names[:50])


def _produce_times(activity: ActivitySeen) -> dict[str, Any]:
    produce = activity.requests.get("Produce")
    return {
        "median_ms": None if produce is None else produce.median_ms,
        "slow_ms": None if produce is None else produce.slow_ms,
        "bytes_in": activity.bytes_in,
        "bytes_out": activity.bytes_out,
    }


def broker_rows(picture: Snapshot) -> list[dict[str, Any]]:
    leaders, replicas = _leaders(picture), _replicas(picture)
    return [
        {
            "id": broker.id,
            "address": broker.address,
            "rack": broker.rack,
            "controller": broker.id == picture.controller,
            "answers": broker.answers,
            "leaders": leaders[broker.id],
            "replicas": replicas[broker.id],
            "size": broker.disk_bytes,
            "disk_total": broker.disk_total_bytes,
            "disk_free": broker.disk_free_bytes,
        }
        for broker in picture.brokers
    ]


def problems(picture: Snapshot) -> list[Problem]:
    """What is wrong now, the worst first."""
    found = [*_of_brokers(picture), *_of_partitions(picture), *_of_disks(picture)]
    return sorted(found, key=lambda problem: problem.severity != "severe")


def _of_brokers(picture: Snapshot) -> Iterator[Problem]:
    for broker in picture.brokers:
        if not broker.answers:
            yield Problem(
                "severe",
                f"Broker {broker.id} does not answer",
                f"The cluster lists it at {broker.address}, and the console cannot connect to it. "
                "Look at its log, and at the network between here and there.",
            )
    known = {broker.id for broker in picture.brokers}
    for node, count in sorted(_replicas(picture).items()):
        if node not in known:
            yield Problem(
                "warning",
                f"Broker {node} is away and has {count} replicas",
                "Start it again. If it will not come back, move its replicas to others: "
                "`forebay cluster rebalance`.",
            )


def _of_partitions(picture: Snapshot) -> Iterator[Problem]:
    leaderless = [topic for topic in picture.topics.values() if topic.leaderless]
    if leaderless:
        count = sum(topic.leaderless for topic in leaderless)
        yield Problem(
            "severe",
            f"{_count(count, 'partition has', 'partitions have')} no leader",
            f"Nobody can read or write them: {_named([topic.name for topic in leaderless])}. "
            "Start the brokers that have their replicas; `forebay cluster check` names what is missing.",
            _link(leaderless[0].name, len(leaderless)),
        )
    behind = [topic for topic in picture.topics.values() if topic.under_replicated]
    if behind:
        count = sum(topic.under_replicated for topic in behind)
        yield Problem(
            "warning",
            f"{_count(count, 'partition is', 'partitions are')} under-replicated",
            f"A replica is away or behind: {_named([topic.name for topic in behind])}. "
            "They catch up by themselves when their broker is back.",
            _link(behind[0].name, len(behind)),
        )


def _of_disks(picture: Snapshot) -> Iterator[Problem]:
    for broker in picture.brokers:
        total, free = broker.disk_total_bytes, broker.disk_free_bytes
        if not total or free is None or free / total >= _DISK_FREE_SHARE_MIN:
            continue
        severe = free / total < _DISK_FREE_SHARE_SEVERE
        yield Problem(
            "severe" if severe else "warning",
            f"The disk of broker {broker.id} is {100 - 100 * free // total} % full",
            "Shorten the retention of the largest topics, delete what nobody needs, or add a disk.",
            "topics?sort=-size",
        )


def _link(topic: str, count: int) -> str:
    return f"topics/{topic}" if count == 1 else "topics"


def _named(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _leaders(picture: Snapshot) -> Counter[int]:
    return Counter(part.leader for topic in picture.topics.values() for part in topic.partitions)


def _replicas(picture: Snapshot) -> Counter[int]:
    return Counter(
        node for topic in picture.topics.values() for part in topic.partitions for node in part.replicas
    )
