"""What a view cannot be made of: refused with its place; and texts that try to keep a broker busy."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.views.sql.syntax import NESTING_MAX, TEXT_CHARS_MAX
from forebay.core.views.view import ViewError, compile_view
from support.machines.view_records import lets_through, record


def error_of(where: str | None, select: str | None = None) -> str:
    with pytest.raises(ViewError) as raised:
        compile_view(where, select)
    return raised.value.message


@pytest.mark.parametrize(
    ("where", "place", "words"),
    [
        ("value.a = ", "line 1, column 9", "missing"),
        ("value.a = 1 AND AND value.b = 2", "line 1, column 17", "missing"),
        ("value.a > 100 AND\n  region = 'eu'", "line 2, column 3", "no column region"),
        ('value.a = "eu"', "line 1, column 11", "single quotes"),
        ("value.a = (SELECT 1)", "line 1, column 19", "SUBQUERY"),
        ("value.a IN (SELECT 1)", "line 1, column 1", "IN with query"),
        ("value.b = 1 AND sum(value.a) > 3", "line 1, column 17", "no function sum"),
        ("row_number() OVER () = 1", "line 1, column 1", "WINDOW"),
        ("value.a = ?", "line 1, column 1", "PLACEHOLDER"),
        ("value.a = 1; value.b = 2", "line 1, column 12", "semicolon"),
        ("headers = 'a'", "line 1, column 1", "headers['name']"),
        ("key.x = 1", "line 1, column 1", "key has no parts"),
        ("value[value.b] = 1", "line 1, column 7", "whole number"),
        ("value.a LIKE value.b", "line 1, column 14", "text in quotes"),
        ("value.a LIKE 'x!' ESCAPE '!'", "line 1, column 1", "escape character"),
        ("value.a LIKE ANY ('x', 'y')", "line 1, column 19", "ANY"),
        ("regexp_like(value.a, '(')", "line 1, column 22", "regular expression"),
        ("value.a BETWEEN SYMMETRIC 1 AND 2", "line 1, column 1", "symmetric"),
        ("CAST(value.a AS DECIMAL(10, 2)) = 1", "line 1, column 6", "no type"),
        ("CAST(value.a AS BLOB) = 1", "line 1, column 6", "no type"),
        ("timestamp > INTERVAL -'1e300' SECOND", "line 1, column 23", "too large"),
        ("timestamp > now() - INTERVAL '1 month'", "line 1, column 13", "week is the largest"),
        ("value.a + 1", "line 1, column 1", "no condition"),
        ("value.a = 1 OR 'x'", "line 1, column 16", "no condition"),
        ("headers['x']", "line 1, column 1", "no condition"),
        ("value.a -> 'b' = 1", "line 1, column 1", "value.field"),
        ("timestamp > '2026-01-01'", "line 1, column 1", "TIMESTAMP '2026-01-31 12:00:00'"),
        ("value.a = 1 AND headers['n'] > 5", "line 1, column 17", "a text is compared with a number"),
        ("5 < key", "line 1, column 1", "a number is compared with a text"),
        ("headers['n'] IN ('1', 2)", "line 1, column 1", "never true"),
        ("offset BETWEEN 1 AND 'x'", "line 1, column 1", "never true"),
        ("length(value.a) = 'x'", "line 1, column 1", "never true"),
        ("CASE key WHEN 1 THEN true END", "line 1, column 15", "never true"),
        ("offset LIKE '1%'", "line 1, column 1", "a pattern is for texts"),
        ("timestamp > TIMESTAMP 'tomorrow'", "line 1, column 23", "'tomorrow' is no timestamp"),
        ("value.a = CAST('x' AS BIGINT)", "line 1, column 16", "'x' is no bigint"),
        ("value.a & 1 = 1", "line 1, column 1", "BITWISEAND"),
        ("value.a = 1e999", "line 1, column 11", "too large"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused_with_its_place(where: str, place: str, words: str) -> None:
    message = error_of(where)
    assert words in message
    assert place in message
    shown, caret = message.split("\n")[1:]
    column = int(place.split()[-1])
    assert caret.index("^") - 2 == column - 1
    assert shown[2:] == where.split("\n")[int(place.split()[1].rstrip(",")) - 1]


def test_the_place_in_a_long_line_is_shown_with_what_is_around_it() -> None:
    where = " AND ".join(f"value.field{number} = {number}" for number in range(200)) + " AND nothing = 1"
    _, shown, caret = error_of(where).split("\n")
    assert shown[caret.index("^") :].startswith("nothing")
    assert len(shown) < 150


@pytest.mark.parametrize("text", ["", "  ", "\n", "-- nothing", "'no end", "value.a = '\ud800'"])
def test_texts_that_are_no_expression_are_refused(text: str) -> None:
    assert error_of(text)
    assert error_of(None, text)


@pytest.mark.parametrize(
    ("select", "words"),
    [
        ("*", "name"),
        ("value.*", "cannot be selected"),
        ("value.a + 1", "AS name"),
        ("value.items[0]", "AS name"),
        ("value.a, value.b, value.a", "selected twice"),
        ("key FROM t", "no FROM"),
        ("value.a WHERE true", "no FROM or WHERE"),
        ("DISTINCT value.a", "nothing but expressions"),
        ("value.a LIMIT 1", "nothing but expressions"),
        ("value.a UNION SELECT 1", "list of expressions"),
        ("nothing", "no column nothing"),
    ],
)
def test_selections_are_lists_of_named_expressions(select: str, words: str) -> None:
    assert words in error_of(None, select)


def test_the_place_in_a_selection_is_counted_in_its_own_text() -> None:
    assert "(line 1, column 6)\n  key, nothing\n       ^" in error_of(None, "key, nothing")


NESTED: list[Callable[[int], str]] = [
    lambda depth: "(" * depth + "value.a" + ")" * depth,
    lambda depth: "NOT (" * depth + "value.a" + ")" * depth,
    lambda depth: "lower(" * depth + "value.a" + ")" * depth + " = 'x'",
    lambda depth: "CASE WHEN " * depth + "value.a" + " THEN true END" * depth,
    lambda depth: "coalesce(value.b, " * depth + "value.a" + ")" * depth,
    lambda depth: "CAST(" * depth + "value.a" + " AS BOOLEAN)" * depth,
    lambda depth: "value.b = 1 AND (value.c = 2 OR (" * (depth // 2) + "value.a" + "))" * (depth // 2),
]


@pytest.mark.parametrize("nested", NESTED, ids=range(len(NESTED)))
def test_what_is_nested_as_deep_as_it_may_be_is_compiled_anywhere_in_the_stack(
    nested: Callable[[int], str],
) -> None:
    def down(frames: int) -> None:
        if frames:
            down(frames - 1)
        else:
            compile_view(nested(NESTING_MAX), None)

    assert sys.getrecursionlimit() >= 1000
    down(200)
    for depth in (NESTING_MAX + 2, 1000):
        assert "nested more than" in error_of(nested(depth))


@pytest.mark.parametrize(
    "where",
    [
        "NOT " * 5000 + "value.a",
        "- " * 5000 + "value.a = 1",
        " + ".join(["value.a"] * 3000) + " = 1",
        " || ".join(["value.a"] * 3000) + " = 'x'",
        "value" + ".a" * 5000 + " = 1",
        "value" + "[0]" * 5000 + " = 1",
        "value.a IS NULL" + " IS NULL" * 2000,
        "value.a = 1" + " = 1" * 5000,
        "INTERVAL " * 2000 + "'1 day' = 1",
        "value.a = " + "1" * 5000,
        "(" * 5000,
        "[" * 5000,
        "value.a = 'x" + "''" * 10_000,
        "regexp_like(value.a, '" + "(" * 1000 + "a{100}" + "){100}" * 1000 + "')",
        "x" * (TEXT_CHARS_MAX + 1),
        "value.a LIKE '" + "_a%" * 600 + "'",
        "regexp_like(value.a, '" + "a?" * 600 + "')",
    ],
    ids=range(17),
)  # fmt: skip
def test_hostile_texts_are_refused(where: str) -> None:
    started = time.process_time()
    assert error_of(where)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("opening", ["date(", "timestamp(", "char(", "struct(", "union (", "array["])
def test_the_parser_does_not_try_all_ways_to_read_what_is_nested(opening: str) -> None:
    """With each level it would take twice as long: an hour for what may be nested."""
    closing = "]" if opening.endswith("[") else ")"
    nested = opening * 18 + "value.a" + closing * 18
    assert "too complicated" in error_of(nested)
    assert "too complicated" in error_of(None, f"{nested} AS a")


def test_fields_whose_names_are_words_of_sql_nest_nothing() -> None:
    where = " OR ".join(f"value.case = {number} AND value.end = {number}" for number in range(100))
    assert lets_through(where, record({"case": 99, "end": 99}))
    for field in ("case", "end"):
        assert "nested more than" in error_of(
            f"value.{field} = 1 AND " * 100 + "(" * 100 + "true" + ")" * 100
        )


def test_long_chains_and_lists_are_no_nesting() -> None:
    many = 1500
    where = " OR ".join(f"value.a = {number}" for number in range(many))
    assert lets_through(where, record({"a": many - 1}))
    where = " AND ".join(f"value.a <> {number}" for number in range(many))
    assert lets_through(where, record({"a": many}))
    where = f"value.a IN ({', '.join(map(str, range(5000)))})"
    assert lets_through(where, record({"a": 4999}))
    assert not lets_through(where, record({"a": 5000}))


@pytest.mark.parametrize(
    "where",
    [
        "value.a LIKE '" + "%a" * 500 + "%b'",
        "value.a LIKE '" + "a%_" * 200 + "b'",
        "value.a LIKE '%" + "_" * 500 + "b'",
        "value.a ILIKE '" + "%a_" * 200 + "b%'",
        "regexp_like(value.a, '(a+)+b')",
        "regexp_like(value.a, '(a|a|a)*b')",
    ],
    ids=range(6),
)
def test_no_pattern_keeps_a_text_busy(where: str) -> None:
    started = time.process_time()
    assert not lets_through(where, record({"a": "a" * 20_000}))
    assert time.process_time() - started < 5


@given(st.text(alphabet="value.key()[]'\"= <>andornot0123456789%*+-,;:|\n\\é\0", max_size=60))
def test_any_text_is_a_view_or_an_error_of_one(text: str) -> None:
    for where, select in ((text, None), (None, text)):
        try:
            compile_view(where, select)
        except ViewError as error:
            assert error.message


def test_a_selection_has_a_bounded_number_of_columns() -> None:
    compile_view(None, ", ".join(f"value AS a{number}" for number in range(100)))
    with pytest.raises(ViewError, match="at most 100 columns"):
        compile_view(None, ", ".join(f"value AS a{number}" for number in range(101)))


def test_a_text_that_is_put_together_has_a_bounded_length() -> None:
    one = record({"a": "x" * 600_000})
    assert lets_through("length(value.a || 'y') = 600001", one)
    assert lets_through("value.a || value.a IS NULL", one)
