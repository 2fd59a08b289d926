"""The values that a view with a selection delivers: JSON objects with the selected columns, in that order.

Each column may be the whole document. So for large records columns are written one by one, and the result is
bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from orjson import dumps

from forebay.core.views.conditions.compiler import Compiler, Evaluate
from forebay.core.views.conditions.expressions import NamedExpression
from forebay.core.views.conditions.limits import TooMuchWork

SELECTED_BYTES_MIN = 16 << 20
SELECTED_TIMES = 4
"""The bound of a selection's result for a record, or a batch: some bytes, plus a multiple of its input."""
_AT_ONCE_BYTES = 1 << 20

Projection = Callable[[Any, int], bytes]
"""Called with a document or a Row, and the size of the record."""


def projection(selection: Sequence[NamedExpression], compiler: Compiler) -> Projection:
    """Raises TooMuchWork."""
    columns = [(named.name, compiler.value(named.expression)) for named in selection]

    def project(row: Any, record_bytes: int) -> bytes:
        if record_bytes * len(columns) <= _AT_ONCE_BYTES:
            return dumps({name: value(row) for name, value in columns})
        return _one_by_one(columns, row, SELECTED_BYTES_MIN + SELECTED_TIMES * record_bytes)

    return project


def _one_by_one(columns: Sequence[tuple[str, Evaluate]], row: Any, bytes_max: int) -> bytes:
    fields: list[bytes] = []
    for name, value in columns:
        fields.append(dumps(name) + b":" + dumps(value(row)))
        bytes_max -= len(fields[-1])
        if bytes_max < 0:
            raise TooMuchWork
    return b"{" + b",".join(fields) + b"}"
