"""Views: the list, one with its definition and progress, creating one with a preview, deleting."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from forebay.console.messages.showing import mask_of
from forebay.console.web.asking import Ask, Change, NotThere, WrongInput, body_text
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.core.views.view import CompiledView, ViewError, compile_view
from forebay.operations.client import REQUEST_SECONDS, CommandError, settle
from forebay.operations.messages.log_offsets import ends_of
from forebay.operations.messages.message_formats import json_bytes
from forebay.operations.topics.view_preview import preview_partition
from forebay.operations.topics.views import (
    View,
    create_view,
    existing_view,
    read_stops,
    read_views,
    view_lags,
)

PAGE = Page()

_EXAMINED_MAX = 2_000
_PARTITIONS_MAX = 16
_SHOWN_MAX = 20


@PAGE.get("/views")
def views(ask: Ask) -> dict[str, Any]:
    picture = ask.cluster.snapshot()
    plain = [name for name, topic in picture.topics.items() if not topic.internal]
    with ask.cluster.connections() as connections:
        found = read_views(connections.any(), plain)
    return page_of(
        ask,
        list(found.values()),
        name=lambda view: f"{view.name} {view.source}",
        columns={
            "name": lambda view: view.name,
            "source": lambda view: view.source,
            "kind": lambda view: view.materialized,
        },
        default="name",
        show=asdict,
    )


@PAGE.get("/view-preview")
def preview(ask: Ask) -> dict[str, Any]:
    """Preview what a view shows of the newest messages. The query: source, where, select, keep_tombstones."""
    compiled = _compiled(ask.text("where"), ask.text("select"), ask.flag("keep_tombstones"))
    picture = ask.cluster.snapshot()
    topic = picture.topics.get(ask.text("source"))
    if topic is None:
        raise WrongInput("choose a topic", "source")
    _check_sees_all(ask, topic.name)
    parts = [part for part in topic.partitions if part.end and part.leader >= 0][:_PARTITIONS_MAX]
    share = max(1, _EXAMINED_MAX // max(1, len(parts)))
    found = []
    with ask.cluster.connections() as connections:
        for part in parts:
            broker = picture.broker(part.leader)
            if broker is None or part.end is None:
                continue
            span = (max(part.start or 0, part.end - share), part.end)
            connection = connections.at(broker.address)
            found.append(preview_partition(connection, compiled, topic.name, part.index, span))
    newest = sorted(
        ((record, each.partition) for each in found for record in each.records),
        key=lambda pair: -pair[0].timestamp,
    )
    return {
        "examined": sum(each.examined for each in found),
        "matched": sum(each.matched for each in found),
        "invalid": sum(each.invalid for each in found),
        "rows": [
            {
                "partition": partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                **json_bytes("key", record.key),
                **json_bytes("value", record.value),
            }
            for record, partition in newest[:_SHOWN_MAX]
        ],
    }


def _check_sees_all(ask: Ask, source: str) -> None:
    """A condition tells of fields that it tests, and a selection can give them other names."""
    if mask_of(ask.cluster, source, ask.user) is not None:
        raise WrongInput("views are for users who may see all fields: this console masks some", "source")


def _compiled(where: str, select: str, keep_tombstones: bool) -> CompiledView:
    """Each text alone first, so that the person learns which of them is wrong."""
    condition, selection = where.strip() or None, select.strip() or None
    try:
        compile_view(condition, None)
    except ViewError as error:
        raise WrongInput(error.message, "where") from None
    try:
        return compile_view(condition, selection, keep_tombstones=keep_tombstones)
    except ViewError as error:
        raise WrongInput(error.message, "select") from None


@PAGE.change("/views/create")
def create(ask: Ask) -> Change:
    """The body: name, source, where, select, keep_tombstones, materialize."""
    name, source = body_text(ask, "name").strip(), body_text(ask, "source").strip()
    where = body_text(ask, "where", required=False).strip() or None
    select = body_text(ask, "select", required=False).strip() or None
    keeps, stored = ask.body.get("keep_tombstones") is True, ask.body.get("materialize") is True
    if name in ask.cluster.snapshot().topics:
        raise WrongInput(f"there is a topic {name} already", "name")
    if source not in ask.cluster.snapshot().topics:
        raise WrongInput(f"there is no topic {source}", "source")
    _check_sees_all(ask, source)
    _compiled(where or "", select or "", keeps)
    command = ["view", "create", name, "--from", source]
    command += [] if where is None else ["--where", where]
    command += [] if select is None else ["--select", select]
    command += ["--keep-tombstones"] if keeps else []
    command += ["--materialize"] if stored else []
    view = View(
        name=name, source=source, where=where, select=select, keep_tombstones=keeps, materialized=stored
    )
    return Change(
        question=f"Create view {name} of topic {source}?",
        details=[
            f"where {where}" if where else "every message",
            f"select {select}" if select else "values as they are",
        ],
        done=f"created view {name} of topic {source}",
        command=command,
        act=lambda: create_view(ask.cluster.admin(), view),
    )


@PAGE.change("/views/{view}/delete")
def delete(ask: Ask) -> Change:
    view = _existing(ask)
    lost = "Its own messages are deleted, too." if view.materialized else "Its source keeps all messages."
    return Change(
        question=f"Delete view {view.name}?",
        details=[lost, "What groups have committed for it is lost."],
        done=f"deleted view {view.name}",
        command=["view", "delete", view.name, "--yes"],
        act=lambda: settle(
            ask.cluster.admin().delete_topics([view.name], request_timeout=REQUEST_SECONDS)[view.name]
        ),
        danger=True,
        name=view.name,
    )


@PAGE.get("/views/{view}")
def one(ask: Ask) -> dict[str, Any]:
    view = _existing(ask)
    admin = ask.cluster.admin()
    places = [(view.name, index) for index in ask.cluster.client.partitions(admin, view.name)]
    starts, ends = ends_of(admin, places)
    lags = view_lags(admin, view.source, ends.found) if view.materialized else {}
    stops = read_stops(ask.cluster.client, admin, view.name) if view.materialized else {}
    return {
        **asdict(view),
        "rows": [
            {
                "partition": index,
                "start": starts.found.get((name, index)),
                "end": ends.found.get((name, index)),
                "lag": lags.get(index),
                "stopped": stops.get(index),
            }
            for name, index in places
        ],
    }


def _existing(ask: Ask) -> View:
    try:
        with ask.cluster.connections() as connections:
            return existing_view(connections.any(), ask.path["view"])
    except CommandError as error:
        raise NotThere(str(error)) from None
