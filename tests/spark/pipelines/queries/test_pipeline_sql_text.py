"""stream('topic') in SQL: found where it stands, and nowhere else."""

from __future__ import annotations

import pytest

from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.queries.sql_text import rewrite


def test_a_call_becomes_a_view() -> None:
    text, calls = rewrite("SELECT o.id FROM stream('orders') AS o WHERE o.id > 1")
    assert text == "SELECT o.id FROM `orders` AS o WHERE o.id > 1"
    assert [(call.topic, call.options) for call in calls] == [("orders", {})]


def test_options_and_spaces_and_case() -> None:
    text, calls = rewrite("select * from Stream ( 'a.b-c' , watermark => '1 minute',SCHEMA=>'id INT' )x")
    assert text == "select * from `a.b-c`x"
    assert calls[0].options == {"watermark": "1 minute", "schema": "id INT"}


def test_two_topics_and_one_of_them_twice() -> None:
    sql = "SELECT * FROM stream('a') x JOIN stream('b') y ON x.k = y.k JOIN stream('a') z ON z.k = y.k"
    text, calls = rewrite(sql)
    assert text.count("`a`") == 2
    assert [call.topic for call in calls] == ["a", "b"]


def test_topics_that_differ_only_in_case_are_two_views_of_other_names() -> None:
    sql = "SELECT * FROM stream('Orders') a JOIN stream('orders') b ON a.k = b.k CROSS JOIN stream('users') c"
    text, calls = rewrite(sql)
    assert [call.topic for call in calls] == ["Orders", "orders", "users"]
    views = [call.view(calls) for call in calls]
    assert len({view.lower() for view in views}) == 3
    assert views[2] == "`users`"
    assert all(view in text for view in views) and "`orders`" not in text.lower()


def test_strings_names_and_comments_are_not_looked_into() -> None:
    sql = """SELECT 'stream(''no'')', "stream('no')", `stream('no')` -- stream('no')
    /* stream('no') */ , my_stream('no'), x.stream('no') FROM stream('yes')"""
    text, calls = rewrite(sql)
    assert [call.topic for call in calls] == ["yes"]
    assert text == sql.replace("stream('yes')", "`yes`")


def test_quotes_within_an_option() -> None:
    _, calls = rewrite(r"SELECT * FROM stream('a', schema => 'x STRING COMMENT ''it\'s''')")
    assert calls[0].options["schema"] == "x STRING COMMENT 'it's'"


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT 1", "reads no topic"),
        ("SELECT * FROM stream(orders)", "cannot be understood at 'orders"),
        ("SELECT * FROM stream('a'", "cannot be understood at ''"),
        ("SELECT * FROM stream('a', 'b')", "cannot be understood"),
        ("SELECT * FROM stream('a', colour => 'red')", "no option colour"),
        ("SELECT * FROM stream('a', format => 'json', format => 'text')", "stands twice"),
        ("SELECT * FROM stream('a') JOIN stream('a', format => 'text')", "with different options"),
    ],
)
def test_what_cannot_be_understood_is_said(sql: str, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        rewrite(sql)
