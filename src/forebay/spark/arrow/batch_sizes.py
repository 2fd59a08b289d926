"""How large the batches are that go between the JVM and Python.

What the JVM sends is bounded by Spark's setting `spark.sql.execution.arrow.maxBytesPerBatch`, and what Python
sends is bounded here. Without a bound in bytes a topic with large values cannot be worked on: ten thousand
rows of 250 KB overflow Arrow's offsets, or the memory of the JVM, and do so again at every restart.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

BATCH_BYTES = 64 << 20
"""Both ways, unless a session says otherwise for what its JVM sends."""


def bounded(rows: pa.RecordBatch, bytes_max: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most so many bytes; a row that is larger has a batch of its own."""
    if rows.num_rows <= 1 or rows.nbytes <= bytes_max:
        yield rows
        return
    half = rows.num_rows // 2
    yield from bounded(rows.slice(0, half), bytes_max)
    yield from bounded(rows.slice(half), bytes_max)
