"""Rows that cannot be messages where they want to go, as dead letters in the transaction of the others.

That is a row without a topic, or with one that does not exist, with a partition that its topic does not have,
with a header without a key, without a key where the topic is compacted, or too large for its topic
(`too_large`). What only a broker can refuse, a timestamp that is too far from its time for example, fails the
write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.spark.arrow.arrays import Flags, flags, numbers, valid
from forebay.spark.sink.encode import Rows, as_binary, bytes_bound, encode
from forebay.spark.sink.options import Columns
from forebay.spark.sink.topic_rules import TopicRules
from forebay.wire.batch import HEADER_SIZE
from forebay.wire.compression import compress

PREFIX = "__dlq.errors."
"""As in share groups' dead letters (KIP-1191)."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Refusals:
    """Divides the rows of a task."""

    def __init__(
        self,
        columns: Columns,
        topic: str | None,
        partitions: Callable[[str], int | None],
        rules: Callable[[str], TopicRules],
    ) -> None:
        """`topic`: where all rows go; None when each row says so itself.

        `partitions` answers None for a topic that does not exist.
        """
        self._columns = columns
        self._topic = topic
        self._partitions = partitions
        self._rules = rules

    def divide(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None, list[str]]:
        """The rows that can be written; and the others, if there are any, each with the reason."""
        reasons: dict[int, str] = {}
        for look in (
            self._without_topic,
            self._unknown_topic,
            self._headers,
            self._partition,
            self._without_key,
        ):
            for row, reason in look(batch).items():
                reasons.setdefault(row, reason)
        if not reasons:
            return batch, None, []
        bad = np.zeros(batch.num_rows, np.bool_)
        bad[list(reasons)] = True
        return batch.filter(flags(~bad)), batch.filter(flags(bad)), [reasons[row] for row in sorted(reasons)]

    def _without_topic(self, batch: pa.RecordBatch) -> dict[int, str]:
        if self._topic is not None or self._columns.topic is None:
            return {}
        return dict.fromkeys(_where(~valid(batch.column(self._columns.topic))), "the row has no topic")

    def _unknown_topic(self, batch: pa.RecordBatch) -> dict[int, str]:
        return {
            row: f"there is no topic {topic}"
            for topic, rows in self._topics(batch).items()
            if self._partitions(topic) is None
            for row in _where(rows)
        }

    def _headers(self, batch: pa.RecordBatch) -> dict[int, str]:
        headers = None if self._columns.headers is None else batch.column(self._columns.headers)
        each = None if headers is None else headers.flatten()
        if headers is None or each is None or not (each.null_count or each.field("key").null_count):
            return {}
        rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
        wrong = ~valid(each) | ~valid(pc.struct_field(each, "key"))
        return dict.fromkeys(map(int, rows[wrong]), "a header is null or has a null key")

    def _partition(self, batch: pa.RecordBatch) -> dict[int, str]:
        column = None if self._columns.partition is None else batch.column(self._columns.partition)
        if column is None or column.null_count == len(column):
            return {}
        wanted, named = numbers(column, np.int32), valid(column)
        refused: dict[int, str] = {}
        for topic, rows in self._topics(batch).items():
            count = self._partitions(topic) or 0
            for row in _where(rows & named & ((wanted < 0) | (wanted >= count))):
                refused[row] = f"the row asks for partition {wanted[row]} of {topic}, which has {count}"
        return refused

    def _without_key(self, batch: pa.RecordBatch) -> dict[int, str]:
        column = self._columns.key
        absent = np.ones(batch.num_rows, np.bool_) if column is None else ~valid(batch.column(column))
        return {
            row: f"the row has no key, and {topic} is compacted"
            for topic, rows in (self._topics(batch).items() if absent.any() else ())
            if self._partitions(topic) is not None and self._rules(topic).needs_key
            for row in _where(rows & absent)
        }

    def _topics(self, batch: pa.RecordBatch) -> dict[str, Flags]:
        """Which rows go to which topic."""
        if self._topic is not None or self._columns.topic is None:
            return {self._topic or "": np.ones(batch.num_rows, np.bool_)}
        topics = batch.column(self._columns.topic)
        return {
            name.as_py(): valid(topics) & pc.fill_null(pc.equal(topics, name), False).to_numpy(False)
            for name in pc.unique(topics.drop_null())
        }

    def letters(self, batch: pa.RecordBatch, reasons: list[str], timestamps: Any) -> Rows:
        """Messages for the topic of dead letters."""
        columns = self._columns
        value = as_binary(batch.column(columns.value))
        key = None if columns.key is None else as_binary(batch.column(columns.key))
        topics = self._wanted(batch)
        headers = [
            [*_readable(given), _header("topic", topic), _header("message", reason)]
            for given, topic, reason in zip(self._given_headers(batch), topics, reasons, strict=True)
        ]
        return Rows(
            key=pa.nulls(len(value), pa.binary()) if key is None else key,
            value=value,
            timestamp=timestamps,
            headers=pa.array(headers, _HEADERS),
        )

    def _wanted(self, batch: pa.RecordBatch) -> list[str]:
        if self._topic is not None or self._columns.topic is None:
            return [self._topic or ""] * batch.num_rows
        return [topic or "" for topic in batch.column(self._columns.topic).to_pylist()]

    def _given_headers(self, batch: pa.RecordBatch) -> list[list[Any] | None]:
        if self._columns.headers is None:
            return [None] * batch.num_rows
        found: list[list[Any] | None] = batch.column(self._columns.headers).to_pylist()
        return found


def too_large(rows: Rows, codec: int, bytes_max: int) -> dict[int, int]:
    """The rows whose messages are larger than a topic allows, and the bytes that each takes.

    A bound tells it of most rows. Of the others the batch is made that would be sent.
    """
    candidates = _where(bytes_bound(rows) + HEADER_SIZE > bytes_max)
    sizes = {row: _batch_bytes(rows.take(np.array([row], np.intp)), codec) for row in candidates}
    return {row: size for row, size in sizes.items() if size > bytes_max}


def _batch_bytes(row: Rows, codec: int) -> int:
    (payload,) = encode(row, [0])
    return HEADER_SIZE + len(compress(codec, payload.records))


def _readable(headers: list[Any] | None) -> list[Any]:
    return [each for each in headers or () if each is not None and each["key"] is not None]


def _header(name: str, text: str) -> dict[str, Any]:
    return {"key": f"{PREFIX}{name}", "value": text.encode()}


def _where(found: Flags) -> list[int]:
    rows: list[int] = np.flatnonzero(found).tolist()
    return rows
