"""Shows on which brokers the partitions and leaders of topics lie."""

from __future__ import annotations

from typing import Any

from forebay.console.watch.snapshot import PartitionSeen, TopicSeen
from forebay.console.web.asking import Ask
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of

PAGE = Page()

_ROWS = 10
_DRAWN_MAX = 300
"""Of a topic: with more partitions only their numbers are told."""
LEADS, FOLLOWS, BEHIND = "l", "f", "b"


@PAGE.get("/spread")
def spread(ask: Ask) -> dict[str, Any]:
    """For each topic of the page, and each broker: which partitions it leads, follows, or is behind in."""
    picture = ask.cluster.snapshot()
    topics = [topic for topic in picture.topics.values() if ask.flag("internal") or not topic.internal]
    listed = page_of(
        ask,
        topics,
        name=lambda topic: topic.name,
        columns={"name": lambda topic: topic.name, "partitions": lambda topic: len(topic.partitions)},
        default="-partitions",
        show=_shown,
        size=_ROWS,
    )
    nodes = {broker.id for broker in picture.brokers}
    nodes |= {node for topic in topics for part in topic.partitions for node in part.replicas}
    return {**listed, "brokers": sorted(nodes)}


def _shown(topic: TopicSeen) -> dict[str, Any]:
    by_broker: dict[int, dict[str, list[int]]] = {}
    for part in topic.partitions:
        for node in part.replicas:
            kinds = by_broker.setdefault(node, {LEADS: [], FOLLOWS: [], BEHIND: []})
            kinds[_kind(part, node)].append(part.index)
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "brokers": {
            node: {
                "leads": len(kinds[LEADS]),
                "replicas": sum(map(len, kinds.values())),
                "behind": len(kinds[BEHIND]),
                "cells": kinds if len(topic.partitions) <= _DRAWN_MAX else None,
            }
            for node, kinds in by_broker.items()
        },
    }


def _kind(part: PartitionSeen, node: int) -> str:
    if part.leader == node:
        return LEADS
    return FOLLOWS if node in part.isr else BEHIND
