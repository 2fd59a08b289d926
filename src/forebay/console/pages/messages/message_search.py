"""The messages of a topic: a page of them, one of them, files of them."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping
from typing import Any

import orjson

from forebay.console.messages.fetching import EARLIEST, LATEST, Moved, TopicReader, batches_of
from forebay.console.messages.filters import Filter, make_filter
from forebay.console.messages.searching import Effort, Found, Show, parse_cursor, search
from forebay.console.messages.showing import mask_of, show_for
from forebay.console.messages.shown import WHOLE_BYTES_MAX
from forebay.console.messages.tail import tail
from forebay.console.pages.topics.topic import seen
from forebay.console.watch.snapshot import TopicSeen
from forebay.console.web.asking import Ask, Download, NotThere, WrongInput, whole_number
from forebay.console.web.page import Page
from forebay.operations.client import CommandError
from forebay.operations.messages.positions import Beginning, End, Last, Offset, Time, parse_position
from forebay.wire.batch import records
from forebay.wire.records import Record

PAGE = Page()
LIVE = {"tail": tail}

_ROWS_DEFAULT = 50
_ROWS_MAX = 500
_EXPORT_MAX = 10_000
_EXPORT_BYTES_MAX = 32 << 20


# -- reading ---------------------------------------------------------------------------------------------


@PAGE.get("/topics/{topic}/messages")
def messages(ask: Ask) -> dict[str, Any]:
    """A page of messages.

    The query: `from` (empty for the newest first, else as `forebay consume --from`), `partition`, `text`,
    `key`, `header`, `where`, `uncommitted`, `limit`, and `cursor`, with which the next page goes on.
    """
    _, topic = seen(ask)
    limit = ask.number("limit", _ROWS_DEFAULT, least=1, most=_ROWS_MAX)
    found = _search(ask, topic, limit, show_for(ask.cluster.settings))
    return {
        "rows": found.rows,
        "cursor": found.cursor,
        "examined": found.examined,
        "bytes": found.bytes,
        "complete": found.complete,
        "backwards": not ask.text("from"),
    }


def _search(ask: Ask, topic: TopicSeen, limit: int, show: Show, effort: Effort | None = None) -> Found:
    wanted = _filter(ask, topic.name)
    try:
        return _search_once(ask, topic, wanted, limit, show, effort)
    except Moved:
        ask.cluster.watcher.refreshed()
        return _search_once(ask, topic, wanted, limit, show, effort)


def _search_once(
    ask: Ask, topic: TopicSeen, wanted: Filter, limit: int, show: Show, effort: Effort | None
) -> Found:
    backwards = not ask.text("from")
    with ask.cluster.connections() as connections:
        reader = TopicReader(
            connections, ask.cluster.snapshot(), topic.name, committed=not ask.flag("uncommitted")
        )
        return search(
            reader,
            _bounds(ask, reader, backwards),
            wanted=wanted,
            limit=limit,
            backwards=backwards,
            show=show,
            bytes_per_record=(topic.size or 0) / max(1, topic.messages or 1) or 200.0,
            effort=effort,
        )


def _filter(ask: Ask, topic: str) -> Filter:
    return make_filter(
        text=ask.text("text"),
        key=ask.text("key"),
        header=ask.text("header"),
        where=ask.text("where"),
        mask=mask_of(ask.cluster, topic, ask.user),
    )


def _bounds(ask: Ask, reader: TopicReader, backwards: bool) -> dict[int, tuple[int, int]]:
    """The offsets to search between, by partition."""
    partitions = _partitions(ask, reader)
    starts, ends = reader.ends(partitions, EARLIEST), reader.ends(partitions, LATEST)
    there = [each for each in partitions if each in starts and each in ends]
    if cursor := ask.text("cursor"):
        places = _resumed(cursor)
    else:
        places = ends if backwards else _places(ask, reader, there, starts, ends)
    clamped = {each: min(max(places.get(each, starts[each]), starts[each]), ends[each]) for each in there}
    if backwards:
        return {each: (starts[each], clamped[each]) for each in there}
    return {each: (clamped[each], ends[each]) for each in there}


def _resumed(cursor: str) -> Mapping[int, int]:
    places = parse_cursor(cursor)
    if places is None:
        raise WrongInput("this is no cursor: begin anew", "cursor")
    return places


def _partitions(ask: Ask, reader: TopicReader) -> list[int]:
    text = ask.text("partition")
    if not text:
        return reader.partitions
    wanted = [whole_number(part, "partition") for part in text.split(",")]
    for each in wanted:
        if each not in reader.partitions:
            last = reader.partitions[-1]
            raise WrongInput(f"there is no partition {each}: {reader.topic} has 0 to {last}", "partition")
    return wanted


def _places(
    ask: Ask, reader: TopicReader, partitions: list[int], starts: Mapping[int, int], ends: Mapping[int, int]
) -> Mapping[int, int]:
    try:
        position = parse_position(ask.text("from"), time.time_ns() // 1_000_000)
    except CommandError as error:
        raise WrongInput(str(error), "from") from None
    match position:
        case Beginning():
            return starts
        case End():
            return ends
        case Offset(offset):
            return dict.fromkeys(partitions, offset)
        case Last(count):
            return {each: ends[each] - count for each in partitions}
        case Time(timestamp_ms):
            return reader.ends(partitions, timestamp_ms)


@PAGE.get("/topics/{topic}/messages/{partition:int}/{offset:int}")
def message(ask: Ask) -> dict[str, Any]:
    """One message, as much of it as a page can show."""
    show = show_for(ask.cluster.settings, WHOLE_BYTES_MAX)
    return show(int(ask.path["partition"]), _for_reader(ask, message_at(ask)))


@PAGE.get("/topics/{topic}/messages/{partition:int}/{offset:int}/{part}")
def part(ask: Ask) -> Download:
    """The bytes of its key or value."""
    record = _for_reader(ask, message_at(ask))
    name = ask.path["part"]
    if name not in ("key", "value"):
        raise NotThere("a message has a key and a value")
    data = record.key if name == "key" else record.value
    place = f"{ask.path['topic']}-{ask.path['partition']}-{ask.path['offset']}"
    return Download(data or b"", f"{place}.{name}")


def _for_reader(ask: Ask, record: Record) -> Record:
    """The message as this user may see it."""
    mask = mask_of(ask.cluster, ask.path["topic"], ask.user)
    return record if mask is None else mask(record)


def message_at(ask: Ask) -> Record:
    """The message that the address names, as it is; raises NotThere."""
    partition, offset = int(ask.path["partition"]), int(ask.path["offset"])
    _, topic = seen(ask)
    if not 0 <= partition < len(topic.partitions):
        raise NotThere(f"topic {topic.name} has no partition {partition}")
    with ask.cluster.connections() as connections:
        reader = TopicReader(connections, ask.cluster.snapshot(), topic.name, committed=False)
        fetched = reader.fetch_one(partition, offset)
        for batch in batches_of(fetched, offset).visible:
            for record in records(batch):
                if record.offset == offset:
                    return record
    raise NotThere(f"there is no message at offset {offset} of {topic.name}-{partition} (any more)")


# -- files -----------------------------------------------------------------------------------------------


@PAGE.get("/topics/{topic}/export")
def export(ask: Ask) -> Download:
    """The result of a search as a file: `format` is json (an object on each line) or csv."""
    _, topic = seen(ask)
    limit = ask.number("limit", 1000, least=1, most=_EXPORT_MAX)
    kind = ask.text("format", "json")
    if kind not in ("json", "csv"):
        raise WrongInput("files are json or csv", "format")
    size = 0

    def show(partition: int, record: Record) -> dict[str, Any]:
        nonlocal size
        row = exported(partition, record)
        size += len(row["value"] or "") + len(row["key"] or "")
        if size > _EXPORT_BYTES_MAX:
            raise CommandError(f"these are more than {_EXPORT_BYTES_MAX >> 20} MB: take fewer messages")
        return row

    rows = _search(ask, topic, limit, show).rows
    if kind == "csv":
        return Download(_csv(rows), f"{topic.name}.csv", "text/csv")
    lines = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    return Download(lines, f"{topic.name}.jsonl", "application/x-ndjson")


def exported(partition: int, record: Record) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text_or_hex(record.key),
        "value": _text_or_hex(record.value),
        "headers": [[name, _text_or_hex(value)] for name, value in record.headers],
    }


def _text_or_hex(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"hex:{data.hex()}"


def _csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["partition", "offset", "timestamp", "key", "value", "headers"])
    for row in rows:
        headers = orjson.dumps(row["headers"]).decode() if row["headers"] else ""
        cells = [row["key"] or "", row["value"] or "", headers]
        writer.writerow([row["partition"], row["offset"], row["timestamp"], *map(_harmless, cells)])
    return out.getvalue().encode()


def _harmless(cell: str) -> str:
    """A cell that begins like a formula would be computed by a spreadsheet."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
