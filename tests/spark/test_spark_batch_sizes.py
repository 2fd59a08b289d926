"""Batches by bytes: what the source hands to the JVM, and what the sink works on at a time."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forebay.spark.arrow.batch_sizes import bounded


@given(st.lists(st.integers(0, 3000), max_size=60), st.integers(1, 5000))
def test_the_same_rows_in_batches_of_at_most_so_many_bytes(sizes: list[int], bytes_max: int) -> None:
    rows = pa.record_batch({"value": pa.array([b"." * size for size in sizes], pa.binary())})
    parts = list(bounded(rows, bytes_max))
    assert [len(value) for part in parts for value in part.column(0).to_pylist()] == sizes
    assert all(part.num_rows == 1 or part.nbytes <= bytes_max for part in parts if sizes)
