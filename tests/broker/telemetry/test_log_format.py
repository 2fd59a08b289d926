"""Lines of the log cannot be forged by what clients call themselves or ask for."""

from __future__ import annotations

import logging

import pytest

from forebay.broker.telemetry.log_format import TextFormatter


@pytest.mark.parametrize(
    ("fact", "shown"),
    [
        ("orders", "who=orders"),
        ("größe", "who=größe"),
        ("", 'who=""'),
        ("a b", 'who="a b"'),
        ("x=1", 'who="x=1"'),
        ("a\nERROR forged", 'who="a\\nERROR forged"'),
        ("\x1b[2J", 'who="\\u001b[2J"'),
        ("\u202eorders", 'who="\\u202eorders"'),
    ],
)
def test_facts_are_quoted_where_they_could_mean_something_else(fact: str, shown: str) -> None:
    record = logging.makeLogRecord({"msg": "refused", "levelname": "INFO", "name": "forebay", "who": fact})
    line = TextFormatter().format(record)
    assert line.endswith(f"refused {shown}")
    assert "\n" not in line
