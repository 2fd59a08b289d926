"""Between numpy and Arrow, by the buffers that both share.

Arrow's own conversions (`pa.array`, `pa.scalar`, `to_numpy`, a kernel that is given a Python value) import
pandas where it is installed, only to see whether they were given a Series. That is a third of a second and
tens of megabytes in each of the processes that Spark starts to plan a query, to read and to commit, none of
which has any use for pandas. (Where a task writes, Spark itself brings it in.)
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)


def array(kind: pa.DataType, values: npt.NDArray[np.generic], null: Flags | None = None) -> pa.Array:
    """An Arrow array of a type of the same width as the values, which it does not copy."""
    validity = _bits(~null) if null is not None and null.any() else None
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def flags(values: Flags) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def binary(ends: npt.NDArray[np.integer], data: pa.Buffer) -> pa.Array:
    """The bytes from each end to the next, one element fewer than there are ends."""
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), data]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def constant(value: bytes, kind: pa.DataType | None = None) -> pa.Scalar:
    """A scalar of bytes, or of another type that is laid out like them."""
    buffers = [None, pa.py_buffer(np.array([0, len(value)], np.int32)), pa.py_buffer(value)]
    return pa.Array.from_buffers(kind or pa.binary(), 1, buffers)[0]


def numbers(found: pa.Array, kind: type[Number]) -> npt.NDArray[Number]:
    """The values of an array whose type is as wide as the kind; anything may stand where it is null."""
    if not len(found):
        return np.empty(0, kind)
    return np.frombuffer(found.buffers()[1], kind)[found.offset : found.offset + len(found)]


def valid(found: pa.Array) -> Flags:
    """Which elements are not null."""
    bitmap = found.buffers()[0] if found.null_count else None
    if bitmap is None:
        return np.ones(len(found), np.bool_)
    first, skipped = divmod(found.offset, 8)
    count = skipped + len(found)
    some = np.frombuffer(bitmap, np.uint8)[first : first + (count + 7) // 8]
    return np.unpackbits(some, bitorder="little", count=count)[skipped:].view(np.bool_)


def ends(found: pa.Array) -> npt.NDArray[np.int32]:
    """Where elements of variable size begin and end in their data, one more than there are elements."""
    offsets = np.frombuffer(found.buffers()[1], np.int32)
    return offsets[found.offset : found.offset + len(found) + 1]


def lengths(found: pa.Array) -> Ints:
    """Of strings, bytes or lists: -1 for null, as in a record."""
    sizes = np.diff(ends(found)).astype(np.int64)
    return np.where(valid(found), sizes, -1) if found.null_count else sizes


def _bits(values: Flags) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
