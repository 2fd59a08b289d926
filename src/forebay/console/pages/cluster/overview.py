"""The overview: brokers, throughput, lag, what is wrong now and what to do about it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from forebay.console.watch.problems import problems, replicas_by_broker
from forebay.console.watch.snapshot import ActivitySeen, Snapshot
from forebay.console.web.asking import Ask
from forebay.console.web.page import Page

PAGE = Page()

_LARGEST = 5


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
        "rate": sum(rates) if rates or (not shown and picture.number > 1) else None,
        "produce": None if picture.activity is None else _produce_times(picture.activity),
        "size": sum(sizes) if sizes else None,
        "remote": _remote_bytes(picture),
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


def _remote_bytes(picture: Snapshot) -> int | None:
    """Bytes in object stores; None if no topic is tiered."""
    known = [topic.remote_bytes for topic in picture.topics.values() if topic.remote_bytes is not None]
    return sum(known) if known else None


def _produce_times(activity: ActivitySeen) -> dict[str, Any]:
    produce = activity.requests.get("Produce")
    return {
        "median_ms": None if produce is None else produce.median_ms,
        "slow_ms": None if produce is None else produce.slow_ms,
        "bytes_in": activity.bytes_in,
        "bytes_out": activity.bytes_out,
    }


def broker_rows(picture: Snapshot) -> list[dict[str, Any]]:
    leaders, replicas = _leaders(picture), replicas_by_broker(picture)
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


def _leaders(picture: Snapshot) -> Counter[int]:
    return Counter(part.leader for topic in picture.topics.values() for part in topic.partitions)
