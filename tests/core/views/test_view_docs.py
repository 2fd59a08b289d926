"""The queries in the documentation of views are queries, and mean what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forebay.core.views.conditions.expressions import ColumnName
from forebay.core.views.conditions.functions import COALESCE, FUNCTIONS
from forebay.core.views.view import ViewError, compile_view
from support.machines.view_records import lets_through, record

PAGE = (Path(__file__).parents[3] / "docs" / "views.md").read_text()


def test_the_conditions_in_the_documentation_compile() -> None:
    found = [
        line for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
    ]
    found += re.findall(r'--where "(.*?)"', PAGE)
    assert len(found) >= 5
    for where in found:
        compile_view(where, None)


def test_the_selections_in_the_documentation_compile() -> None:
    found = re.findall(r'--select "(.*?)"', PAGE)
    assert found
    for select in found:
        compile_view(None, select)


def test_every_column_and_function_is_in_the_documentation() -> None:
    for name in [*(column.value for column in ColumnName), *FUNCTIONS, COALESCE]:
        assert re.search(rf"`[^`]*\b{name}\b", PAGE), name


def test_the_error_in_the_documentation_is_what_is_said() -> None:
    [shown] = re.findall(r"```\n(there is no column.*?)\n```", PAGE, re.DOTALL)
    with pytest.raises(ViewError) as raised:
        compile_view("value.amount > 100 AND region = 'eu'", None)
    assert raised.value.message == shown


def test_what_the_documentation_says_of_null_and_types() -> None:
    nothing, seven = record({}), record({"id": 7, "region": "us"})
    assert not lets_through("value.region <> 'eu'", nothing)
    assert lets_through("value.region IS DISTINCT FROM 'eu'", nothing)
    assert not lets_through("value.id = '7'", seven)
    assert lets_through("CAST(value.id AS VARCHAR) = '7'", seven)
    assert lets_through("CAST(value.id AS VARCHAR) = '7'", record({"id": "7"}))
    assert lets_through("7 / 2 = 3.5", nothing)
