"""Rows that cannot be messages where they want to go, as dead letters in the transaction of the others.

That is a row without a topic, with a partition that its topic does not have, or with a header without a key.
(What only a broker can refuse, a message that is too large for example, fails the write.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.spark.arrow.arrays import Flags, flags, numbers, valid
from forebay.spark.sink.encode import Rows, as_binary
from forebay.spark.sink.options import Columns

PREFIX = "__dlq.errors."
"""As in share groups' dead letters (KIP-1191)."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Refusals:
    """Divides the rows of a task."""

    def __init__(self, columns: Columns, topic: str | None, partitions: Callable[[str], int]) -> None:
        """`topic`: where all rows go; None when each row says so itself."""
        self._columns = columns
        self._topic = topic
        self._partitions = partitions

    def divide(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None, list[str]]:
        """The rows that can be written; and the others, if there are any, each with the reason."""
        reasons: dict[int, str] = {}
        for refused in (self._without_topic(batch), self._headers(batch), self._partition(batch)):
            for row, reason in refused.items():
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
            count = self._partitions(topic)
            for row in _where(rows & named & ((wanted < 0) | (wanted >= count))):
                refused[row] = f"the row asks for partition {wanted[row]} of {topic}, which has {count}"
        return refused

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


def _readable(headers: list[Any] | None) -> list[Any]:
    return [each for each in headers or () if each is not None and each["key"] is not None]


def _header(name: str, text: str) -> dict[str, Any]:
    return {"key": f"{PREFIX}{name}", "value": text.encode()}


def _where(found: Flags) -> list[int]:
    rows: list[int] = np.flatnonzero(found).tolist()
    return rows
