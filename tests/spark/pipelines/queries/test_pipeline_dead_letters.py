"""Values that do not fit their schema: in a topic of their own, once, as `forebay dead-letter` knows them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from forebay.client import Admin
from forebay.errors import ConfigError
from forebay.spark.dead_letters import dead_letters
from forebay.spark.pipelines import ONCE, Brokers, PipelineError, SqlSettings, sql
from forebay.spark.pipelines.brokers import NoTopic
from forebay.spark.pipelines.queries.values import AVRO, ValueFormat, misfits
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import forebay
from support.spark.topics import NINE_MS, Sent, contents, make, send
from support.waiting import Patience

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

QUERY = "SELECT id AS key, id * 2 AS twice FROM stream('dl-orders')"
HEADERS = (("trace", b"7"),)
GOOD = [Sent(b'{"id": 1}', b"a"), Sent(b'{"id": 2}', b"b"), Sent(None, b"deleted")]
BAD = [Sent(b"no json", b"c", headers=HEADERS), Sent(b'{"id": "many"}', None)]


@pytest.fixture(scope="module")
def brokers(broker: BrokerProcess) -> Brokers:
    make(broker.bootstrap, dl_orders=1, dl_twice=1, dl_letters=1, dl_avro=1)
    return Brokers(bootstrap=broker.bootstrap)


def settings(checkpoint: Path, letters: str = "dl-letters") -> SqlSettings:
    return SqlSettings(
        schemas={"dl-orders": "id INT"}, trigger=ONCE, checkpoint=str(checkpoint), dead_letters=letters
    )


def test_what_does_not_fit_is_a_dead_letter_and_the_rest_is_not(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    bootstrap = brokers.bootstrap
    send(bootstrap, "dl-orders", [GOOD[0], BAD[0], GOOD[1]])
    first = sql(spark, brokers, QUERY, "dl-twice", settings(tmp_path)).wait().facts
    send(bootstrap, "dl-orders", [BAD[1], GOOD[2]])
    second = sql(spark, brokers, QUERY, "dl-twice", settings(tmp_path)).wait().facts
    assert [facts["dead letters"] for facts in (first, second)] == [1, 1]
    assert (first["rows"], first["rows written"]) == (3, 2)

    written = [json.loads(one.value or b"") for one in contents(bootstrap, "dl-twice")]
    assert [one["twice"] for one in written] == [2, 4, None]
    letters = contents(bootstrap, "dl-letters")
    assert [(one.key, one.value, one.timestamp_ms) for one in letters] == [
        (bad.key, bad.value, NINE_MS) for bad in BAD
    ]
    assert letters[0].headers[:1] == HEADERS
    listed = forebay("dead-letter", "list", "dl-letters", "--json", bootstrap=bootstrap)
    assert listed.code == 0, listed.err
    for place in ("dl-orders", "the value is no JSON of the schema id INT"):
        assert listed.out.count(place) >= 2, listed.out


def test_from_the_latest_on_results_and_dead_letters_begin_at_the_same_message(
    spark: SparkSession, brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that comes while the query is started is read for both, or for none."""
    from forebay.spark.pipelines.queries import sql as queries

    bootstrap = brokers.bootstrap
    make(bootstrap, dl_late=1, dl_late_out=1, dl_late_letters=1)
    send(bootstrap, "dl-late", [Sent(b"older", b"older"), Sent(b'{"id": 1}', b"a")])
    view = queries._view

    def slow_view(*arguments: Any) -> Any:
        send(bootstrap, "dl-late", [Sent(b"no json", b"b"), Sent(b'{"id": 2}', b"c")])
        return view(*arguments)

    monkeypatch.setattr(queries, "_view", slow_view)
    query = "SELECT id, _offset AS at FROM stream('dl-late', schema => 'id INT')"
    chosen = SqlSettings(
        trigger=ONCE, start="latest", checkpoint=str(tmp_path), dead_letters="dl-late-letters"
    )
    facts = sql(spark, brokers, query, "dl-late-out", chosen).wait().facts
    assert (facts["rows written"], facts["dead letters"]) == (1, 1)
    assert [json.loads(one.value or b"") for one in contents(bootstrap, "dl-late-out")] == [
        {"id": 2, "at": 3}
    ]
    assert [one.key for one in contents(bootstrap, "dl-late-letters")] == [b"b"]


@pytest.mark.parametrize("mode", ["append", "update"])
def test_letters_and_results_of_a_batch_are_one_transaction(
    spark: SparkSession, brokers: Brokers, tmp_path: Path, mode: str
) -> None:
    bootstrap, names = brokers.bootstrap, {name: f"dl-{name}-{mode}" for name in ("in", "out", "letters")}
    make(bootstrap, **dict.fromkeys(names.values(), 1))
    with Admin(bootstrap) as admin:
        admin.set_topic_config(names["out"], {"max.message.bytes": "300"})
        values = [Sent(b"no json", b"a"), Sent(b'{"id": 1, "text": "%s"}' % (b"x" * 400), b"b")]
        send(bootstrap, names["in"], values)
        query = f"SELECT id AS key, text FROM stream('{names['in']}', schema => 'id INT, text STRING')"
        chosen = SqlSettings(trigger=ONCE, mode=mode, checkpoint=str(tmp_path), dead_letters=names["letters"])
        with pytest.raises(PipelineError, match=r"max\.message\.bytes"):
            sql(spark, brokers, query, names["out"], chosen).wait()
        assert contents(bootstrap, names["letters"]) == []
        admin.set_topic_config(names["out"], {"max.message.bytes": "3000"})
    facts = sql(spark, brokers, query, names["out"], chosen).wait().facts
    assert (facts["rows"], facts["rows written"], facts["dead letters"]) == (2, 1, 1)
    assert [one.key for one in contents(bootstrap, names["letters"])] == [b"a"]
    assert [one.key for one in contents(bootstrap, names["out"])] == [b"1"]


def test_a_checkpoint_whose_letters_were_written_apart_is_refused(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    kept = {"query": QUERY, "streams": {"dl-orders": {"format": "json", "schema": "id INT"}}}
    (tmp_path / "forebay-query.json").write_text(json.dumps(kept))
    (tmp_path / "dead-letters" / "dl-orders").mkdir(parents=True)
    (tmp_path / "dead-letters" / "dl-orders" / "metadata").write_text("{}")
    with pytest.raises(PipelineError, match="give a new checkpoint"):
        sql(spark, brokers, QUERY, "dl-twice", settings(tmp_path))


def test_queries_over_one_topic_have_their_dead_letters_at_the_same_time(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    bootstrap = brokers.bootstrap
    make(bootstrap, dl_both=1, dl_both_out=1, dl_both_letters=1)
    send(bootstrap, "dl-both", [Sent(b"no json", b"a"), Sent(b'{"id": 1}', b"b")])
    query = "SELECT id FROM stream('dl-both', schema => 'id INT')"
    jobs = []
    for name in ("one", "two"):
        chosen = SqlSettings(checkpoint=str(tmp_path / name), dead_letters="dl-both-letters")
        jobs.append(sql(spark, brokers, query, "dl-both-out", chosen))
    patience = Patience("both have their letters")
    while len(contents(bootstrap, "dl-both-letters")) < 2:
        patience.check()
    for job in jobs:
        job.stop()
    assert [one.key for one in contents(bootstrap, "dl-both-letters")] == [b"a", b"a"]


def test_avro_that_does_not_fit(spark: SparkSession, brokers: Brokers) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), {"id": 5})
    send(brokers.bootstrap, "dl-avro", [Sent(buffer.getvalue()), Sent(b"", b"empty", headers=HEADERS)])
    rows = brokers.read(spark, "dl-avro", includeHeaders="true")
    letters = misfits(rows, ValueFormat(format=AVRO, schema=json.dumps(schema)))
    assert letters is not None
    (letter,) = letters.collect()
    about = {header.key: bytes(header.value) for header in letter.headers}
    assert (bytes(letter.key), about["trace"], about["__dlq.errors.offset"]) == (b"empty", b"7", b"1")
    assert about["__dlq.errors.message"].startswith(b"the value is no Avro of its schema: EOFError")


def test_where_dead_letters_cannot_go(spark: SparkSession, brokers: Brokers, tmp_path: Path) -> None:
    for letters in ("dl-orders", "dl-twice"):
        with pytest.raises(PipelineError, match="a topic that the query neither reads nor writes"):
            sql(spark, brokers, QUERY, "dl-twice", settings(tmp_path, letters))
    with pytest.raises(NoTopic, match="there is no topic dl-nowhere"):
        sql(spark, brokers, QUERY, "dl-twice", settings(tmp_path, "dl-nowhere"))
    with pytest.raises(ConfigError, match="topic, partition, offset is missing"):
        dead_letters(spark.createDataFrame([(b"", b"")], "key BINARY, value BINARY"), "why")
