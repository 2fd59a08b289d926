"""SQL from topics to a topic: windows, joins, Avro, restarts, and what is wrong with a query."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from forebay.spark.pipelines import ONCE, Brokers, PipelineError, SqlSettings, sql
from forebay.spark.pipelines.brokers import NoTopic
from support.brokers.broker_process import BrokerProcess
from support.spark.topics import NINE_MS, Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

TOTALS = """
    SELECT date_format(window(_timestamp, '1 minute').start, 'HH:mm') AS minute, country, sum(amount) AS total
    FROM stream('sql-orders', watermark => '30 seconds')
    WHERE _corrupt_record IS NULL AND country IS NOT NULL
    GROUP BY window(_timestamp, '1 minute'), country
"""
USER = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "id", "type": "string"}, {"name": "age", "type": ["null", "int"]}],
}


@pytest.fixture(scope="module")
def brokers(broker: BrokerProcess) -> Brokers:
    make(
        broker.bootstrap,
        sql_orders=2,
        sql_totals=2,
        sql_updates=2,
        sql_updated=1,
        sql_joined=1,
        sql_users=1,
        sql_empty=1,
    )
    return Brokers(bootstrap=broker.bootstrap)


def order(second: int, country: str, amount: int, user: str = "u0") -> Sent:
    value = {"country": country, "amount": amount, "user": user}
    return Sent(json.dumps(value).encode(), b"k", second % 2, NINE_MS + second * 1000)


def results(brokers: Brokers, topic: str) -> list[tuple[bytes | None, Any]]:
    found = [(one.key, json.loads(one.value or b"")) for one in contents(brokers.bootstrap, topic)]
    return sorted(found, key=str)


def test_windows_over_restarts_with_an_inferred_schema(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    """A minute is written when it is past its watermark, once; a broken message does no harm."""
    settings = SqlSettings(trigger=ONCE, key="country", checkpoint=str(tmp_path / "checkpoint"))
    send(brokers.bootstrap, "sql-orders", [order(1, "de", 5), order(2, "fr", 7), order(70, "de", 1)])
    send(brokers.bootstrap, "sql-orders", [Sent(b"broken", None, 0, NINE_MS), Sent(None, None, 1, NINE_MS)])
    sql(spark, brokers, TOTALS, "sql-totals", settings).wait()
    assert results(brokers, "sql-totals") == []

    send(brokers.bootstrap, "sql-orders", [order(3, "de", 10), order(200, "fr", 3)])
    summary = sql(spark, brokers, TOTALS, "sql-totals", settings).wait()
    assert summary.facts["rows"] == 2
    assert results(brokers, "sql-totals") == [
        (b"de", {"minute": "09:00", "country": "de", "total": 15}),
        (b"de", {"minute": "09:01", "country": "de", "total": 1}),
        (b"fr", {"minute": "09:00", "country": "fr", "total": 7}),
    ]

    with pytest.raises(PipelineError, match="is the checkpoint of another query"):
        sql(spark, brokers, TOTALS.replace("sum", "max"), "sql-totals", settings)


def test_changed_rows_in_update_mode(spark: SparkSession, brokers: Brokers, tmp_path: Path) -> None:
    """What the next batch does not change is not written again, and no watermark is needed."""
    query = "SELECT country, sum(amount) AS total FROM stream('sql-updates') GROUP BY country"
    settings = SqlSettings(
        schemas={"sql-updates": "country STRING, amount INT"},
        key="country",
        mode="update",
        trigger=ONCE,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    batches = ([order(1, "de", 1), order(2, "fr", 2)], [order(3, "de", 4)])
    for orders in batches:
        send(brokers.bootstrap, "sql-updates", orders)
        facts = sql(spark, brokers, query, "sql-updated", settings).wait().facts
        assert (facts["rows"], facts["rows written"]) == (len(orders), len(orders))
    found = [(one.key, json.loads(one.value or b"")) for one in contents(brokers.bootstrap, "sql-updated")]
    assert sorted(found[:2], key=str) == [
        (b"de", {"country": "de", "total": 1}),
        (b"fr", {"country": "fr", "total": 2}),
    ]
    assert found[2:] == [(b"de", {"country": "de", "total": 5})]


def test_topics_that_differ_in_case_are_two_and_any_name_of_a_field_is_inferred(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    make(brokers.bootstrap, sql_case=1, Sql_Case=1, sql_case_out=1)
    for topic, number in (("sql-case", 1), ("Sql-Case", 2)):
        value = {"a": {"b-c": number, "d`e": [{"f g": "x"}]}, "h i": topic}
        send(brokers.bootstrap, topic, [Sent(json.dumps(value).encode())])
    query = """
        SELECT a.`b-c` AS n, a.`d``e`[0].`f g` AS x, `h i` AS topic FROM stream('sql-case')
        UNION ALL
        SELECT o.a.`b-c`, o.a.`d``e`[0].`f g`, o.`h i` FROM stream('Sql-Case') AS o"""
    settings = SqlSettings(trigger=ONCE, checkpoint=str(tmp_path / "checkpoint"))
    sql(spark, brokers, query, "sql-case-out", settings).wait()
    assert results(brokers, "sql-case-out") == [
        (None, {"n": 1, "x": "x", "topic": "sql-case"}),
        (None, {"n": 2, "x": "x", "topic": "Sql-Case"}),
    ]


def test_a_join_of_json_and_avro(spark: SparkSession, brokers: Brokers, tmp_path: Path) -> None:
    send(brokers.bootstrap, "sql-orders", [order(300, "de", 1, "ann"), order(301, "de", 2, "bob")])
    users = []
    for name, age in (("ann", 41), ("bob", None)):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(USER), {"id": name, "age": age})
        users.append(Sent(buffer.getvalue(), None, 0, NINE_MS + 299_000))
    send(brokers.bootstrap, "sql-users", users)
    (tmp_path / "user.avsc").write_text(json.dumps(USER))
    query = """
        SELECT u.id AS key,
               concat(u.id, ' is ', coalesce(CAST(u.age AS STRING), 'ageless'), ': ', o.amount) AS value
        FROM stream('sql-orders') o JOIN stream('sql-users') u
        ON o.user = u.id AND o._timestamp BETWEEN u._timestamp AND u._timestamp + INTERVAL 1 MINUTE
    """
    settings = SqlSettings(
        schemas={"sql-orders": "user STRING, amount INT", "sql-users": f"@{tmp_path}/user.avsc"},
        watermarks={"sql-orders": "1 minute", "sql-users": "1 minute"},
        trigger=ONCE,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    sql(spark, brokers, query, "sql-joined", settings).wait()
    found = [(one.key, one.value) for one in contents(brokers.bootstrap, "sql-joined")]
    assert sorted(found, key=str) == [(b"ann", b"ann is 41: 1"), (b"bob", b"bob is ageless: 2")]


@pytest.mark.parametrize(
    ("query", "settings", "problem"),
    [
        ("SELECT colour FROM stream('sql-orders')", {}, "cannot be run: .*colour.*the fields of its values"),
        ("SELEC amount FROM stream('sql-orders')", {}, "the query cannot be run: .*SELEC"),
        ("SELECT amount FROM stream('sql-orders')", {"key": "id"}, "no column id for a key: it has amount"),
        ("SELECT count(*) FROM stream('sql-orders')", {}, "cannot be run: .*watermark.*--mode complete"),
        ("SELECT 1 FROM stream('sql-orders')", {"mode": "last"}, "there is no mode last"),
        ("SELECT 1 FROM stream('sql-orders', watermark => 'late')", {}, "'late' is neither '10 seconds' nor"),
        ("SELECT 1 FROM stream('sql-orders')", {"schemas": {"x": "y INT"}}, r"has no stream\('x'\)"),
        ("SELECT 1 FROM stream('sql-orders', format => 'xml')", {}, "there is no format xml"),
        ("SELECT 1 FROM stream('sql-orders', format => 'avro')", {}, "values in avro need a schema"),
        (
            "SELECT 1 FROM stream('sql-orders', schema => '@/no.avsc')",
            {},
            "schema in /no.avsc cannot be read",
        ),
        ("SELECT 1 FROM stream('sql-empty')", {"schemas": {}}, "give one with --schema 'sql-empty=id INT"),
    ],
)
def test_what_is_wrong_with_a_query_is_said(
    spark: SparkSession,
    brokers: Brokers,
    tmp_path: Path,
    query: str,
    settings: dict[str, Any],
    problem: str,
) -> None:
    given = {"schemas": {"sql-orders": "amount INT"}, "checkpoint": str(tmp_path), **settings}
    if "sql-empty" in query or "format" in query or "@" in query:
        given["schemas"] = {}
    with pytest.raises(PipelineError, match=problem):
        sql(spark, brokers, query, "sql-totals", SqlSettings(trigger=ONCE, **given)).wait()


def test_topics_that_are_not_there(spark: SparkSession, brokers: Brokers, tmp_path: Path) -> None:
    settings = SqlSettings(checkpoint=str(tmp_path))
    with pytest.raises(NoTopic, match="there is no topic nowhere"):
        sql(spark, brokers, "SELECT 1 FROM stream('sql-orders')", "nowhere", settings)
    with pytest.raises(NoTopic, match="there is no topic nobody"):
        sql(spark, brokers, "SELECT 1 FROM stream('nobody')", "sql-totals", settings)
