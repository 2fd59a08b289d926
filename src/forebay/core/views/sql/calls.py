"""Function calls as the parser returns them: a class for each function that it knows, or just a name."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from forebay.core.views.conditions.expressions import Call, Expression, Now
from forebay.core.views.conditions.functions import COALESCE, FUNCTIONS
from forebay.core.views.sql.syntax import Source

_CLASSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Lower": ("lower", ("this",)),
    "Upper": ("upper", ("this",)),
    "Trim": ("trim", ("this",)),
    "Length": ("length", ("this",)),
    "StartsWith": ("starts_with", ("this", "expression")),
    "EndsWith": ("ends_with", ("this", "expression")),
    "Contains": ("contains", ("this", "expression")),
    "Substring": ("substring", ("this", "start", "length")),
    "Abs": ("abs", ("this",)),
    "Floor": ("floor", ("this",)),
    "Ceil": ("ceil", ("this",)),
    "Round": ("round", ("this", "decimals")),
    "Nullif": ("nullif", ("this", "expression")),
    "Coalesce": (COALESCE, ("this", "expressions")),
}
_NAMES = ", ".join(sorted([*FUNCTIONS, COALESCE, "now"]))


def read_call(
    source: Source, node: exp.Expression, read: Callable[[exp.Expression], Expression]
) -> Expression:
    if isinstance(node, exp.CurrentTimestamp) or (isinstance(node, exp.Anonymous) and _is_now(node)):
        return Now()
    name, arguments = _called(source, node)
    if name != COALESCE:
        function = FUNCTIONS[name]
        if not function.arguments_min <= len(arguments) <= function.arguments_max:
            raise source.error(node, f"{name} does not take {len(arguments)} arguments")
    return Call(name, tuple(map(read, arguments)))


def _called(source: Source, node: exp.Expression) -> tuple[str, list[exp.Expression]]:
    known = _CLASSES.get(type(node).__name__)
    if known is not None:
        name, places = known
        given = {place: part for place, part in node.args.items() if _is_argument(part)}
        if not set(given) <= set(places):
            raise source.error(node, f"{name} does not take these arguments")
        found: list[exp.Expression] = []
        for place in places:
            part = given.get(place)
            found += part if isinstance(part, list) else [part] if part is not None else []
        return name, found
    if isinstance(node, exp.Anonymous) and str(node.this).lower() in FUNCTIONS:
        return str(node.this).lower(), node.expressions
    if isinstance(node, exp.JSONExtract | exp.JSONExtractScalar):
        raise source.error(node, "a field is named so: value.field or value['field']")
    if isinstance(node, exp.Func):
        name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
        raise source.error(node, f"there is no function {name.lower()}; there are {_NAMES}")
    raise source.error(node, f"{node.key.upper()} cannot be used in a view")


def _is_argument(part: object) -> bool:
    return isinstance(part, exp.Expression) or (isinstance(part, list) and bool(part))


def _is_now(node: exp.Anonymous) -> bool:
    return str(node.this).lower() == "now" and not node.expressions
