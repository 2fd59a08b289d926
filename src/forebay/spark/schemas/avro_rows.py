"""Rows as values for fastavro, which takes what it is given: it leaves out fields that the schema does not
have, makes 1 of 1.7 and false of null.

So a row is checked before it is written: ValueError for a field that the schema does not have, for one that
is missing and has no default, and for a value of another type. Maps, which Arrow gives as pairs, become
dictionaries. All is decided once for a schema.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Mapping
from typing import Any

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
"""What fastavro makes of them. A number is taken too where one lies beneath."""


def row_checker(schema: Any) -> Convert:
    """`schema` as fastavro has parsed it, with all names expanded."""
    return _Checks().of(schema, "")


class _Checks:
    """Records by their name: one that holds itself is expanded once."""

    def __init__(self) -> None:
        self._records: dict[str, Convert] = {}

    def of(self, schema: Any, where: str) -> Convert:
        """What checks values of a schema; `where` is the field that has it, for messages."""
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
            item = self.of(schema["items"], f"{where}[]")
            return lambda value: [item(one) for one in _needed(value, where)]
        if kind == "map":
            return self._map(self.of(schema["values"], f"{where}[]"), where)
        if kind in _SIMPLE:
            return _scalar(kind, schema.get("logicalType"), where)
        return lambda value: self._records.get(kind, _same)(value)

    def _union(self, union: list[Any], where: str) -> Convert:
        rest = [member for member in union if member != "null"]
        # Of several types fastavro takes the one that fits, and none that does not.
        check = self.of(rest[0], where) if len(rest) == 1 else _same
        if len(rest) == len(union):
            return lambda value: check(_needed(value, where))
        return lambda value: None if value is None else check(value)

    def _record(self, schema: Any, where: str) -> Convert:
        checks: dict[str, Convert] = {}
        needed: set[str] = set()
        inside = f"{where}." if where else ""

        def check(row: Row) -> Row:
            unknown = _needed(row, where).keys() - checks.keys()
            if unknown:
                raise ValueError(
                    f"the Avro record {schema['name']} has no field {', '.join(sorted(unknown))}"
                )
            missing = needed - row.keys()
            if missing:
                names = ", ".join(f"{inside}{name}" for name in sorted(missing))
                raise ValueError(f"{names} is missing, and has no default in the Avro schema")
            return {name: checks[name](value) for name, value in row.items()}

        self._records[schema["name"]] = check
        for field in schema["fields"]:
            name, kind = field["name"], field["type"]
            checks[name] = self.of(kind, f"{inside}{name}")
            if "default" not in field and not (isinstance(kind, list) and "null" in kind) and kind != "null":
                needed.add(name)
        return check

    def _map(self, item: Convert, where: str) -> Convert:
        def check(value: Any) -> dict[str, Any]:
            pairs = _needed(value, where)
            return {key: item(one) for key, one in (pairs.items() if isinstance(pairs, dict) else pairs)}

        return check


def _scalar(kind: str, logical: str | None, where: str) -> Convert:
    named = _LOGICAL.get((kind, logical)) if logical else None
    # A number of days or milliseconds is what a logical type is made of; what a decimal is made of is not.
    wanted = _SIMPLE[kind] if named is None else (*named, *(_SIMPLE[kind] if kind in ("int", "long") else ()))

    def check(value: Any) -> Any:
        found = type(_needed(value, where))
        # By the very type: a bool is also an int, and a timestamp also a date, which would be cut.
        if found not in wanted:
            raise ValueError(
                f"{where or 'the value'} is {value!r}, which is no Avro {logical or kind}: cast it"
            )
        return value

    return check


def _needed(value: Any, where: str) -> Any:
    if value is None:
        raise ValueError(f"{where or 'the value'} is null, which the Avro schema does not allow")
    return value


def _same(value: Any) -> Any:
    return value
