"""Conditions of views say what SQLite says of the same text: true, false or unknown."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.machines.view_records import record, truth

NUMBERS = st.one_of(st.none(), st.integers(-4, 4), st.sampled_from([0.5, -1.5, 2.0]))
TEXTS = st.one_of(st.none(), st.text(alphabet="abAB%_\\", max_size=4))
ROWS = st.fixed_dictionaries({"i": NUMBERS, "j": NUMBERS, "s": TEXTS, "t": TEXTS})


def quoted(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def number_literal(number: float | None) -> str:
    return "NULL" if number is None else f"({number})"


Texts = st.SearchStrategy[str]


def joined(operator: str, parts: Texts) -> Texts:
    return st.tuples(parts, parts).map(lambda pair: f"({pair[0]} {operator} {pair[1]})")


def called(function: str, *parts: Texts) -> Texts:
    return st.tuples(*parts).map(lambda arguments: f"{function}({', '.join(arguments)})")


def numbers(depth: int) -> Texts:
    simple = st.one_of(st.sampled_from(["value.i", "value.j"]), NUMBERS.map(number_literal))
    if not depth:
        return simple
    number, text, condition = numbers(depth - 1), texts(depth - 1), conditions(depth - 1)
    return st.one_of(
        simple,
        *(joined(operator, number) for operator in "+-*"),
        called("abs", number),
        called("-", number),
        called("length", text),
        called("coalesce", number, number),
        called("nullif", number, number),
        st.tuples(condition, number, number).map(
            lambda parts: f"(CASE WHEN {parts[0]} THEN {parts[1]} ELSE {parts[2]} END)"
        ),
        st.tuples(text, text, number).map(
            lambda parts: f"(CASE {parts[0]} WHEN {parts[1]} THEN {parts[2]} END)"
        ),
    )


def texts(depth: int) -> Texts:
    simple = st.one_of(st.sampled_from(["value.s", "value.t"]), TEXTS.map(quoted))
    if not depth:
        return simple
    text = texts(depth - 1)
    return st.one_of(
        simple,
        joined("||", text),
        *(called(function, text) for function in ("lower", "upper", "trim")),
        called("coalesce", text, text),
        called("substring", text, st.integers(1, 4).map(str), st.integers(0, 4).map(str)),
    )


def comparisons(parts: Texts) -> Texts:
    operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
    negations = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.tuples(parts, operators, parts).map(lambda three: f"({three[0]} {three[1]} {three[2]})"),
        st.tuples(parts, negations, parts, parts).map(
            lambda four: f"({four[0]} {four[1]}BETWEEN {four[2]} AND {four[3]})"
        ),
        st.tuples(parts, negations, st.lists(parts, min_size=1, max_size=4)).map(
            lambda three: f"({three[0]} {three[1]}IN ({', '.join(three[2])}))"
        ),
        st.tuples(parts, negations).map(lambda two: f"({two[0]} IS {two[1]}NULL)"),
    )


def conditions(depth: int) -> Texts:
    number, text = numbers(max(depth - 1, 0)), texts(max(depth - 1, 0))
    pattern = st.text(alphabet="aB%_", max_size=5)
    simple = st.one_of(
        comparisons(number),
        comparisons(text),
        st.tuples(text, pattern).map(lambda two: f"({two[0]} LIKE {quoted(two[1])})"),
        st.tuples(text, pattern).map(lambda two: f"({two[0]} NOT LIKE '!%{two[1]}' ESCAPE '!')"),
        st.sampled_from(["TRUE", "FALSE"]),
    )
    if not depth:
        return simple
    condition = conditions(depth - 1)
    return st.one_of(
        simple,
        joined("AND", condition),
        joined("OR", condition),
        condition.map(lambda one: f"(NOT {one})"),
        st.tuples(condition, st.sampled_from(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE", "NULL"])).map(
            lambda two: f"({two[0]} IS {two[1]})"
        ),
    )


def of_sqlite(where: str, row: dict[str, Any]) -> bool | None:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("PRAGMA case_sensitive_like = ON")
        columns = ", ".join(f"? AS {name}" for name in row)
        [(found,)] = connection.execute(
            f"SELECT ({where}) FROM (SELECT {columns}) AS value", list(row.values())
        ).fetchall()
    finally:
        connection.close()
    return None if found is None else bool(found)


WITHOUT_PARENTHESES = [
    "value.i = value.j IS TRUE",
    "value.i = 1 IS NOT TRUE",
    "value.s = 'a' IS NOT TRUE",
    "value.i < value.j IS NOT FALSE",
    "value.i <> 1 IS NULL",
    "value.i >= value.j IS NOT NULL",
    "value.i = 1 IS DISTINCT FROM TRUE",
    "value.i > 1 IS NOT DISTINCT FROM FALSE",
    "NOT value.i = 1 IS TRUE",
    "value.i = 1 IS TRUE AND value.j = 2 IS NOT TRUE OR value.s IS NULL",
    "value.i IS NULL = FALSE",
    "value.i IN (1, NULL) IS NULL",
    "value.s LIKE 'a%' IS NOT TRUE",
    "value.i BETWEEN 0 AND value.j IS NOT TRUE",
    "value.i + value.j * 2 = 4 IS NOT FALSE",
    "NOT value.i = 1 AND NOT value.j IS NULL",
    "NOT value.i IN (1, 2) OR value.j = 1 AND value.i = 2",
    "value.i - value.j - 1 < -value.i * 2 + 1",
    "value.s || value.t = 'ab' OR value.s || 'b' LIKE 'a%' || 'b'",
    "CASE WHEN value.i = 1 IS NOT TRUE THEN value.j ELSE 0 END > 0",
]


@given(st.sampled_from(WITHOUT_PARENTHESES), ROWS)
def test_operators_bind_as_in_sqlite(where: str, row: dict[str, Any]) -> None:
    assert truth(where, record(row)) is of_sqlite(where, row)


@given(conditions(3), ROWS)
def test_conditions_are_what_sqlite_says_they_are(where: str, row: dict[str, Any]) -> None:
    assert truth(where, record(row)) is of_sqlite(where, row)
