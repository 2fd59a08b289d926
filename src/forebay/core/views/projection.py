"""The values that a view with a selection delivers: JSON objects of what was selected, in that order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from orjson import dumps

from forebay.core.views.compiler import Compiler
from forebay.core.views.expressions import NamedExpression


def projection(selection: Sequence[NamedExpression], compiler: Compiler) -> Callable[[Any], bytes]:
    columns = [(named.name, compiler.value(named.expression)) for named in selection]
    return lambda row: dumps({name: value(row) for name, value in columns})
