"""Finds stream('topic', ...) in a text of SQL, and puts the name of a view in its place.

Spark's own parser judges everything else; this one only knows what it must not look into: strings, quoted
names and comments.

    SELECT * FROM stream('orders', watermark => '10 seconds') AS o   becomes   SELECT * FROM `orders` AS o
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from forebay.lazy import dataclass
from forebay.spark.pipelines.jobs import PipelineError

OPTIONS = ("schema", "format", "watermark", "registry", "subject", "message")

_STRING = r"'(?:[^'\\]|\\.|'')*'"
_PIECE = re.compile(
    rf"""
      (?P<opaque> {_STRING} | "(?:[^"\\]|\\.)*" | `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/ )
    | (?P<call> (?<![\w.]) stream \s* \( )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_TOPIC = re.compile(rf"\s*(?P<text>{_STRING})\s*", re.DOTALL)
_OPTION = re.compile(rf",\s*(?P<name>\w+)\s*=>\s*(?P<text>{_STRING})\s*", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCall:
    topic: str
    options: Mapping[str, str]

    def view(self, calls: Iterable[StreamCall]) -> str:
        """The name of the view, quoted: a topic's name may hold dots and dashes.

        Spark's names have no case. Where another topic of the query differs in nothing else, neither view is
        named like its topic: `orders.amount` could be a column of both.
        """
        alike = sum(call.topic.lower() == self.topic.lower() for call in calls)
        if alike == 1:
            return f"`{self.topic}`"
        return f"`{self.topic} ({hashlib.sha256(self.topic.encode()).hexdigest()[:8]})`"


def rewrite(sql: str) -> tuple[str, list[StreamCall]]:
    """The text that Spark understands, and each topic that it reads, once."""
    calls: dict[str, StreamCall] = {}
    parts: list[str | StreamCall] = []
    position = 0
    while piece := _PIECE.search(sql, position):
        parts.append(sql[position : piece.start()])
        position = piece.end()
        if piece["opaque"]:
            parts.append(piece["opaque"])
            continue
        call, position = _parse(sql, position)
        if calls.setdefault(call.topic, call) != call:
            raise PipelineError(f"stream('{call.topic}') stands twice with different options: give the same")
        parts.append(call)
    if not calls:
        raise PipelineError("the query reads no topic: FROM stream('TOPIC') names one")
    found = list(calls.values())
    texts = [part if isinstance(part, str) else part.view(found) for part in parts]
    return "".join([*texts, sql[position:]]), found


def _parse(sql: str, position: int) -> tuple[StreamCall, int]:
    """The text in the brackets, and the position after them."""
    topic = _TOPIC.match(sql, position)
    if topic is None:
        raise _wrong(sql, position)
    position = topic.end()
    options: dict[str, str] = {}
    while option := _OPTION.match(sql, position):
        name = option["name"].lower()
        if name not in OPTIONS or name in options:
            raise PipelineError(f"stream() has no option {name}, or it stands twice: there are {_LIST}")
        options[name] = _text(option["text"])
        position = option.end()
    if sql[position : position + 1] != ")":
        raise _wrong(sql, position)
    return StreamCall(topic=_text(topic["text"]), options=options), position + 1


def _wrong(sql: str, position: int) -> PipelineError:
    return PipelineError(
        f"stream() cannot be understood at {sql[position : position + 20]!r}:"
        f" write stream('TOPIC') or stream('TOPIC', OPTION => 'VALUE'), where OPTION is {_LIST}"
    )


def _text(literal: str) -> str:
    return _ESCAPE.sub(lambda escape: escape[1] or "'", literal[1:-1])


_LIST = ", ".join(OPTIONS)
