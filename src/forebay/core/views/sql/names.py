"""Columns and places in documents, as the parser returns them: `value.a['b c'][0]`, `headers['x']`."""

from __future__ import annotations

from sqlglot import exp

from forebay.core.views.conditions.expressions import Column, ColumnName, HeaderOf, Path
from forebay.core.views.sql.syntax import Source

_COLUMNS = {column.value: column for column in ColumnName}
_NAMES = ", ".join(_COLUMNS)
_STEPS_MAX = 64

Named = Path | HeaderOf | Column


def read_name(source: Source, node: exp.Expression) -> Named:
    first, *steps = _steps(source, node)
    column = _COLUMNS.get(first.lower()) if isinstance(first, str) else None
    if column is None:
        raise source.error(
            node, f"there is no column {first}; there are {_NAMES}. Texts are written in 'single quotes'"
        )
    if column is ColumnName.VALUE:
        return Path(tuple(steps))
    if column is ColumnName.HEADERS:
        match steps:
            case [str(name)]:
                return HeaderOf(name)
        raise source.error(node, "a header is named so: headers['name']")
    if steps:
        raise source.error(node, f"{first} has no parts: only value.field and headers['name'] have")
    return Column(column)


def last_name(node: exp.Expression) -> str | None:
    """The default name of a selected expression."""
    match node:
        case exp.Column():
            return node.name
        case exp.Dot() if isinstance(node.expression, exp.Identifier):
            return node.expression.name
        case exp.Bracket() if len(node.expressions) == 1 and node.expressions[0].is_string:
            return str(node.expressions[0].this)
        case exp.Paren():
            return last_name(node.this)
    return None


def _steps(source: Source, node: exp.Expression) -> list[str | int]:
    """The names and numbers of a path, from its column on."""
    steps: list[str | int] = []
    while not isinstance(node, exp.Column):
        if len(steps) > _STEPS_MAX:
            raise source.error(node, f"a path has at most {_STEPS_MAX} steps")
        match node:
            case exp.Dot() if isinstance(node.expression, exp.Identifier):
                steps.append(node.expression.name)
            case exp.Bracket() if len(node.expressions) == 1:
                steps.append(_subscript(source, node.expressions[0]))
            case exp.Paren():
                pass
            case _:
                raise source.error(
                    node, "this is no path; write value.field, value['a field'] or value.list[0]"
                )
        node = node.this
    if isinstance(node.this, exp.Star):
        raise source.error(node, "* cannot be selected: name the fields, or leave the selection out")
    return [*(part.name for part in node.parts), *reversed(steps)]


def _subscript(source: Source, node: exp.Expression) -> str | int:
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if isinstance(literal, exp.Literal):
        if literal.is_string and not negative:
            return str(literal.this)
        if literal.is_int and len(literal.this) < 10:
            return -int(literal.this) if negative else int(literal.this)
    raise source.error(node, "what stands in [ ] is a text or a whole number")
