"""The list of topics, and creating one."""

from __future__ import annotations

import math
from typing import Any

from forebay.console.watch.snapshot import Snapshot, TopicSeen
from forebay.console.web.asking import Ask, Change, WrongInput, body_text, whole_number
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.operations.client import REQUEST_SECONDS, settle
from forebay.operations.topics.topic_admin import note_on

PAGE = Page()

_PARTITIONS_MAX = 10_000
_REPLICAS_MAX = 32


@PAGE.get("/topics")
def topics(ask: Ask) -> dict[str, Any]:
    """`internal=1` shows the brokers' own topics too; see `web/paging.py` for the rest of the query."""
    picture = ask.cluster.snapshot()
    rows = [topic for topic in picture.topics.values() if ask.flag("internal") or not topic.internal]
    return page_of(
        ask,
        rows,
        name=lambda topic: topic.name,
        columns={
            "name": lambda topic: topic.name,
            "partitions": lambda topic: len(topic.partitions),
            "replication": lambda topic: topic.replication,
            "messages": lambda topic: topic.messages,
            "size": lambda topic: topic.size,
            "remote": lambda topic: topic.remote_bytes,
            "rate": lambda topic: topic.rate,
            "lag": lambda topic: picture.topic_lags.get(topic.name),
            "readers": lambda topic: len(picture.readers.get(topic.name, ())),
        },
        default="name",
        show=lambda topic: topic_row(picture, topic),
    )


def topic_row(picture: Snapshot, topic: TopicSeen) -> dict[str, Any]:
    return {
        "name": topic.name,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication": topic.replication,
        "messages": topic.messages,
        "size": topic.size,
        "remote": topic.remote_bytes,
        "rate": None if topic.rate is None or math.isnan(topic.rate) else round(topic.rate, 2),
        "lag": picture.topic_lags.get(topic.name),
        "readers": picture.readers.get(topic.name, ()),
        "leaderless": topic.leaderless,
        "under_replicated": topic.under_replicated,
    }


@PAGE.change("/topics/create")
def create(ask: Ask) -> Change:
    """The body: name, partitions and replication_factor (empty for the broker's defaults), configs."""
    name = body_text(ask, "name").strip()
    if name in ask.cluster.snapshot().topics:
        raise WrongInput(f"there is a topic {name} already", "name")
    partitions = _optional(ask, "partitions", _PARTITIONS_MAX)
    replication = _optional(ask, "replication_factor", _REPLICAS_MAX)
    configs = configs_of(ask)
    command = ["topic", "create", name]
    command += [] if partitions is None else ["--partitions", str(partitions)]
    command += [] if replication is None else ["--replication-factor", str(replication)]
    for key, value in configs.items():
        command += ["--config", f"{key}={value}"]
    count = "the default number of partitions" if partitions is None else f"{partitions} partitions"

    def act() -> str:
        return _create(ask, name, partitions, replication, configs)

    return Change(
        question=f"Create topic {name} with {count}?", done=f"created topic {name}", command=command, act=act
    )


def _create(
    ask: Ask, name: str, partitions: int | None, replication: int | None, configs: dict[str, str]
) -> str:
    from confluent_kafka.admin import NewTopic

    admin = ask.cluster.admin()
    new = NewTopic(
        name, num_partitions=partitions or -1, replication_factor=replication or -1, config=configs
    )
    settle(admin.create_topics([new], request_timeout=REQUEST_SECONDS)[name])
    note = note_on(admin, name)
    return f"created topic {name}" + (f"; {note}" if note else "")


def configs_of(ask: Ask) -> dict[str, str]:
    """The settings of a body: an object of texts."""
    given = ask.body.get("configs", {})
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise WrongInput("settings are texts by their names", "configs")
    return {str(key).strip(): value.strip() for key, value in given.items() if str(key).strip()}


def _optional(ask: Ask, name: str, most: int) -> int | None:
    value = ask.body.get(name, "")
    return None if value in ("", None) else whole_number(value, name, least=1, most=most)
