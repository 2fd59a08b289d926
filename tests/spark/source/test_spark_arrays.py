"""numpy and Arrow by their buffers give what Arrow's own conversions give, and leave pandas alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from forebay.spark.arrow.arrays import array, binary, constant, ends, flags, lengths, numbers, valid

NUMBERS = pa.array([None if n % 3 == 0 else n for n in range(40)], pa.int32())
TEXTS = pa.array([None if n % 5 == 0 else b"x" * n for n in range(40)], pa.binary())
LISTS = pa.array([None if n % 4 == 0 else [n] * (n % 3) for n in range(40)], pa.list_(pa.int8()))
SLICES = [slice(0, 40), slice(3, 4), slice(7, 31), slice(8, 16), slice(40, 40), slice(1, 3)]


@pytest.mark.parametrize("part", SLICES, ids=str)
def test_elements_of_slices(part: slice) -> None:
    for whole in (NUMBERS, TEXTS, LISTS):
        some = whole[part]
        assert valid(some).tolist() == [element is not None for element in some.to_pylist()]
    for whole in (TEXTS, LISTS):
        some = whole[part].to_pylist()
        assert lengths(whole[part]).tolist() == [-1 if one is None else len(one) for one in some]
    known = NUMBERS[part]
    found = numbers(known, np.int32)
    assert found[valid(known)].tolist() == known.drop_null().to_pylist()


def test_nothing_but_nulls() -> None:
    nothing = pa.nulls(9, pa.binary())
    assert lengths(nothing).tolist() == [-1] * 9
    assert not valid(nothing).any()


def test_arrays_are_those_that_arrow_makes() -> None:
    values, null = np.arange(19), np.arange(19) % 7 == 2
    assert array(pa.int64(), values, null).equals(pa.array(values, mask=null))
    assert array(pa.int64(), values[::2]).equals(pa.array(values[::2]))
    assert flags(null).equals(pa.array(null))
    assert constant(b"abc") == pa.scalar(b"abc")
    assert constant("ä".encode(), pa.string()) == pa.scalar("ä")
    made = binary(np.array([0, 2, 2, 5]), pa.py_buffer(b"abcde"))
    assert made.to_pylist() == [b"ab", b"", b"cde"]
    assert ends(made[1:]).tolist() == [2, 2, 5]


PROGRAM = """
import sys
import numpy as np
import pyarrow as pa
from forebay.spark.sink import batch_writer, stream_writer
from forebay.spark.source import batch_reader, decode, stream_reader
from forebay.spark.arrow.arrays import array, binary
from forebay.spark.source.record_batches import Batch, Piece
from forebay.spark.sink.encode import Rows, cut, encode
from forebay.spark.source.offset_ranges import OffsetRange, TopicPartition
from forebay.spark.sink.partitioning import Partitioner
from forebay.spark.arrow.schema import arrow_schema, spark_schema

texts = binary(np.array([0, 1, 3, 6]), pa.py_buffer(b"abcdef"))
texts = texts.take(array(pa.int32(), np.arange(3, dtype=np.int32), np.array([False, True, False])))
rows = Rows(key=texts, value=texts, timestamp=np.arange(3))
assigned = Partitioner("t", 2, 0).assign(rows.key, array(pa.int32(), np.zeros(3, np.int32)))
rows = rows.take(np.argsort(assigned))
(payload,) = encode(rows, cut(rows, [0], 1 << 20))
data = payload.records
piece = Piece([Batch(0, len(data), 0, 0, 0, 0, 3)], 0, 3)
schema = arrow_schema(spark_schema(headers=True))
(batch,) = decode.Decoder(schema, OffsetRange(TopicPartition("t", 0), 0, 3)).decode(data, piece)
print(batch.column("value").to_pylist(), "pandas" in sys.modules)
"""


def test_neither_planning_nor_a_task_imports_pandas() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "[b'a', None, b'def'] False", done.stderr
