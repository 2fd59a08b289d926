"""Rows as values for fastavro, which takes what it is given: it leaves out fields that the schema does not
have, makes 1 of 1.7 and false of null.

So a row is checked before it is written: ValueError for a field that the schema does not have, for one that
is missing and has no default, and for a value of another type. Maps, which Arrow gives as pairs, become
dictionaries. All is decided once for a schema, and rows without maps are not copied.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from forebay.spark.schemas.decoding import Row

Convert = Callable[[Any], Any]

_SIMPLE: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float, int),
    "double": (float, int),
    "bytes": (bytes,),
    "fixed": (bytes,),
    "string": (str,),
    "enum": (str,),
}
_LOGICAL: Mapping[tuple[str, str], tuple[type, ...]] = {
    ("int", "date"): (dt.date,),
    ("int", "time-millis"): (dt.time,),
    ("long", "time-micros"): (dt.time,),
    ("long", "timestamp-millis"): (dt.datetime,),
    ("long", "timestamp-micros"): (dt.datetime,),
    ("long", "local-timestamp-millis"): (dt.datetime,),
    ("long", "local-timestamp-micros"): (dt.datetime,),
    ("bytes", "decimal"): (decimal.Decimal,),
    ("fixed", "decimal"): (decimal.Decimal,),
}
"""The types that fastavro makes of them. A number is taken too where one lies beneath."""


class _Check(NamedTuple):
    """How values of a schema are checked."""

    run: Convert
    """Raises ValueError, or returns what is to be written."""
    types: frozenset[type] = frozenset()
    """Values of these types need no more than that; none where `run` has to see every value."""
    converts: bool = False
    """True if `run` may return something else than it was given."""


_NOTHING = _Check(lambda value: value)


def row_checker(schema: Any) -> Convert:
    """`schema` as fastavro has parsed it, with all names expanded."""
    return _Checks().of(schema, "").run


class _Checks:
    """Records by their name: one that holds itself is expanded once."""

    def __init__(self) -> None:
        self._records: dict[str, Convert] = {}

    def of(self, schema: Any, where: str) -> _Check:
        """`where` is the field that has the schema, for messages."""
        if isinstance(schema, list):
            return self._union(schema, where)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, where)
        if kind in ("record", "error"):
            return self._record(schema, where)
        if kind == "array":
            return _array(self.of(schema["items"], f"{where}[]"), where)
        if kind == "map":
            return _map(self.of(schema["values"], f"{where}[]"), where)
        if kind in _SIMPLE:
            return _scalar(kind, schema.get("logicalType"), where)
        return _Check(lambda value: self._records.get(kind, _NOTHING.run)(value), converts=True)

    def _union(self, union: list[Any], where: str) -> _Check:
        rest = [member for member in union if member != "null"]
        # Of several types fastavro takes the one that fits, and none that does not.
        check = self.of(rest[0], where) if len(rest) == 1 else _NOTHING
        run = check.run
        if len(rest) == len(union):
            return check._replace(run=lambda value: run(_needed(value, where)))
        types = check.types | {type(None)} if check.types else check.types
        return check._replace(run=lambda value: None if value is None else run(value), types=types)

    def _record(self, schema: Any, where: str) -> _Check:
        name, inside = schema["name"], f"{where}." if where else ""
        self._records[name] = lambda row: run(row)
        checks = {each["name"]: self.of(each["type"], f"{inside}{each['name']}") for each in schema["fields"]}
        needed = {each["name"] for each in schema["fields"] if not _may_be_left_out(each)}
        converts = any(check.converts for check in checks.values())
        known = checks.keys()

        def check(row: Row) -> None:
            if unknown := _needed(row, where).keys() - known:
                raise ValueError(f"the Avro record {name} has no field {', '.join(sorted(unknown))}")
            if missing := needed - row.keys():
                fields = ", ".join(f"{inside}{each}" for each in sorted(missing))
                raise ValueError(f"{fields} is missing, and has no default in the Avro schema")

        def run(row: Row) -> Row:
            if row is None or row.keys() != known:
                check(row)
            if converts:
                return {field: checks[field].run(value) for field, value in row.items()}
            for field, value in row.items():
                if type(value) not in checks[field].types:
                    checks[field].run(value)
            return row

        return _Check(run, converts=converts)


def _may_be_left_out(field: Mapping[str, Any]) -> bool:
    kind = field["type"]
    return "default" in field or kind == "null" or (isinstance(kind, list) and "null" in kind)


def _array(item: _Check, where: str) -> _Check:
    run, types = item.run, item.types

    def check(values: list[Any]) -> list[Any]:
        for value in _needed(values, where):
            if type(value) not in types:
                run(value)
        return values

    if item.converts:
        return _Check(lambda values: [run(value) for value in _needed(values, where)], converts=True)
    return _Check(check)


def _map(item: _Check, where: str) -> _Check:
    def check(value: Any) -> dict[str, Any]:
        pairs = _needed(value, where)
        return {key: item.run(one) for key, one in (pairs.items() if isinstance(pairs, dict) else pairs)}

    return _Check(check, converts=True)


def _scalar(kind: str, logical: str | None, where: str) -> _Check:
    named = _LOGICAL.get((kind, logical)) if logical else None
    # A number of days or milliseconds is what a logical type is made of; what a decimal is made of is not.
    beneath = _SIMPLE[kind] if named is None or kind in ("int", "long") else ()
    # The very types: a bool is also an int, and a timestamp also a date, which would be cut.
    types = frozenset((*(named or ()), *beneath))

    def check(value: Any) -> Any:
        if type(_needed(value, where)) not in types:
            raise ValueError(
                f"{where or 'the value'} is {value!r}, which is no Avro {logical or kind}: cast it"
            )
        return value

    return _Check(check, types)


def _needed(value: Any, where: str) -> Any:
    if value is None:
        raise ValueError(f"{where or 'the value'} is null, which the Avro schema does not allow")
    return value
