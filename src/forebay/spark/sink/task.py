"""One task of a write: Arrow batches in, record batches out.

Small Arrow batches are put together to rounds of a few megabytes, so that every partition gets a batch worth
sending. A round is divided by topic, then by partition, keeping the order of rows within each.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.errors import ErrorCode, ForebayError, KafkaError
from forebay.spark.arrow.arrays import flags, numbers, valid
from forebay.spark.arrow.batch_sizes import bounded
from forebay.spark.sink.encode import Payload, Rows, as_binary, cut, encode
from forebay.spark.sink.options import Columns, WriteOptions
from forebay.spark.sink.partitioning import Partitioner
from forebay.spark.sink.producer import Producer
from forebay.spark.sink.refused_rows import Refusals, too_large
from forebay.spark.sink.topic_rules import NOT_KNOWN, TopicRules
from forebay.wire.batch import HEADER_SIZE

ROUND_BYTES = 8 << 20
_NO_SUCH_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


class TaskSink:
    def __init__(self, producer: Producer, options: WriteOptions, columns: Columns, task: int) -> None:
        self._producer = producer
        self._options = options
        self._columns = columns
        self._task = task
        self._partitioners: dict[str, Partitioner] = {}
        self._rules: dict[str, TopicRules] = {}
        self._missing: set[str] = set()
        self._refusals = Refusals(columns, options.topic, self._partitions, self._rules_of)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Returns when the brokers have acknowledged every row."""
        for batch in rounds(batches):
            for topic, rows in self._by_topic(self._without_refused(batch)):
                self._write_to(topic, rows)
        self._producer.flush()

    def _without_refused(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that can be written, after the others have become dead letters, if there is a topic."""
        if self._options.dead_letters is None:
            return batch
        good, refused, reasons = self._refusals.divide(batch)
        if refused is not None:
            self._send_letters(refused, reasons)
        return good

    def _without_large(self, topic: str, batch: pa.RecordBatch, rows: Rows) -> tuple[pa.RecordBatch, Rows]:
        """The rows that the topic takes, after those that are too large have become dead letters."""
        bytes_max = self._rules_of(topic).message_bytes_max
        if self._options.dead_letters is None or bytes_max is None:
            return batch, rows
        sizes = too_large(rows, self._options.limits.codec, bytes_max)
        if not sizes:
            return batch, rows
        is_large = np.zeros(batch.num_rows, np.bool_)
        is_large[list(sizes)] = True
        reasons = [
            f"the message takes {sizes[row]} bytes, and {topic} allows {bytes_max}" for row in sorted(sizes)
        ]
        self._send_letters(batch.filter(flags(is_large)), reasons)
        good = batch.filter(flags(~is_large))
        return good, rows.take(np.flatnonzero(~is_large))

    def _send_letters(self, refused: pa.RecordBatch, reasons: list[str]) -> None:
        to = self._options.dead_letters
        assert to is not None
        times = _timestamps(self._optional(refused, self._columns.timestamp), refused.num_rows)
        self._send(to, self._refusals.letters(refused, reasons, times), None)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not batch.num_rows:
            return
        index = self._columns.topic
        if self._options.topic is not None or index is None:
            yield self._options.topic or "", batch
            return
        topics = batch.column(index)
        if topics.null_count:
            raise ForebayError("a row has no topic: the column topic is null and there is no option topic")
        names = pc.unique(topics)
        for name in names:
            yield name.as_py(), batch if len(names) == 1 else batch.filter(pc.equal(topics, name))

    def _write_to(self, topic: str, batch: pa.RecordBatch) -> None:
        batch, rows = self._without_large(topic, batch, self._rows(batch))
        if len(rows):
            self._send(topic, rows, self._optional(batch, self._columns.partition))

    def _send(self, topic: str, rows: Rows, partition: pa.Array | None) -> None:
        assigned = self._partitioner(topic).assign(rows.key, partition)
        if (assigned != assigned[0]).any():
            order = np.argsort(assigned, kind="stable")
            rows, assigned = rows.take(order), assigned[order]
        changes = np.flatnonzero(np.diff(assigned)) + 1
        starts = cut(rows, [0, *changes.tolist()], self._batch_bytes(topic))
        partitions = assigned[starts].tolist()
        self._producer.send(topic, _interleaved(partitions, list(encode(rows, starts))))

    def _rows(self, batch: pa.RecordBatch) -> Rows:
        value = as_binary(batch.column(self._columns.value))
        key = self._optional(batch, self._columns.key)
        return Rows(
            key=pa.nulls(len(value), pa.binary()) if key is None else as_binary(key),
            value=value,
            timestamp=_timestamps(self._optional(batch, self._columns.timestamp), len(value)),
            headers=_checked_headers(self._optional(batch, self._columns.headers)),
        )

    def _optional(self, batch: pa.RecordBatch, index: int | None) -> pa.Array | None:
        return None if index is None else batch.column(index)

    def _batch_bytes(self, topic: str) -> int:
        """Of a batch before compression, which makes some a little larger."""
        given, allowed = self._options.limits.batch_bytes, self._rules_of(topic).message_bytes_max
        if allowed is None:
            return given
        spare = HEADER_SIZE + (allowed // 64 + 64 if self._options.limits.codec else 0)
        return max(1, min(given, allowed - spare))

    def _rules_of(self, topic: str) -> TopicRules:
        """Asked for only where rows can become dead letters: it is a right more."""
        if self._options.dead_letters is None:
            return NOT_KNOWN
        if topic not in self._rules:
            self._rules[topic] = self._producer.rules(topic)
        return self._rules[topic]

    def _partitions(self, topic: str) -> int | None:
        """How many a topic has; None if it does not exist, where rows name their topics themselves."""
        if self._options.topic is not None:
            return self._partitioner(topic).count
        if topic in self._missing:
            return None
        try:
            return self._partitioner(topic).count
        except KafkaError as error:
            if error.code not in _NO_SUCH_TOPIC:
                raise
            self._missing.add(topic)
            return None

    def _partitioner(self, topic: str) -> Partitioner:
        if topic not in self._partitioners:
            self._partitioners[topic] = Partitioner(topic, self._producer.partitions(topic), self._task)
        return self._partitioners[topic]


def rounds(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about ROUND_BYTES; there are none without rows."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in chain.from_iterable(map(_slices, batches)):
        held.append(batch)
        size += batch.nbytes
        if size >= ROUND_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts that are about as large as a round; where rows differ much in size, smaller ones."""
    step = batch.num_rows * ROUND_BYTES // max(1, batch.nbytes) + 1
    for start in range(0, batch.num_rows, step):
        yield from bounded(batch.slice(start, step), 2 * ROUND_BYTES)


def _checked_headers(column: pa.Array | None) -> pa.Array | None:
    """Null for a row without headers is fine; a header needs a key, by the rules of Kafka."""
    each = None if column is None else column.flatten()
    if each is not None and (each.null_count or each.field("key").null_count):
        raise ForebayError(
            "a header is null or has a null key, which clients cannot read: leave such headers out, as in "
            "filter(headers, h -> h.key IS NOT NULL)"
        )
    return column


def _interleaved(partitions: list[int], payloads: list[Payload]) -> list[tuple[int, Payload]]:
    """First the first batch of each partition, then the second of each: a request takes one of each."""
    seen: dict[int, int] = {}
    turns = []
    for partition in partitions:
        seen[partition] = seen.get(partition, -1) + 1
        turns.append(seen[partition])
    order = sorted(range(len(partitions)), key=turns.__getitem__)
    return [(partitions[n], payloads[n]) for n in order]


def _timestamps(column: pa.Array | None, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    now_ms = int(time.time() * 1000)
    if column is None or column.null_count == count:
        return np.full(count, now_ms, np.int64)
    return np.where(valid(column), numbers(column, np.int64) // 1000, now_ms)
