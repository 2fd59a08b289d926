"""Values of a schema registry, which is a server of these tests: see `support/spark/schema_registry.py`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from forebay.errors import ConfigError
from forebay.spark.pipelines import ONCE, Brokers, SqlSettings, sql
from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding
from forebay.spark.schemas.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    NoSchemaError,
    Registry,
    RegistryError,
    Schema,
    frame,
    schema_id_of,
)
from support.brokers.broker_process import BrokerProcess
from support.spark.schema_registry import SchemaRegistry, running_registry
from support.spark.topics import Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

OLD: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEW: dict[str, Any] = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "country", "type": "string", "default": "de"}],
}
SUBJECT = "reg-orders-value"


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as running:
        yield running


def avro(schema: dict[str, Any]) -> Schema:
    return Schema(AVRO, json.dumps(schema))


def value(schema_id: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return frame(schema_id) + stream.getvalue()


def test_schemas_are_asked_for_once_and_registered(registry: SchemaRegistry) -> None:
    known = Registry(f"{registry.address}/")
    old = known.register("a/b", avro(OLD))
    assert known.register("a/b", avro(NEW)) == old + 1
    assert known.latest("a/b", AVRO) == (old + 1, avro(NEW))
    registry.asked.clear()
    assert [known.schema(old, AVRO) for _ in range(3)] == [avro(OLD)] * 3
    assert len(registry.asked) == 1


def test_what_a_registry_cannot_give_is_said(registry: SchemaRegistry) -> None:
    known = Registry(registry.address)
    with pytest.raises(NoSchemaError, match="has no subject nobody: Subject 'nobody' not found"):
        known.latest("nobody", AVRO)
    with pytest.raises(NoSchemaError, match="has no schema 9: Schema 9 not found"):
        known.schema(9, AVRO)
    registry.add("proto", {"schemaType": "PROTOBUF", "schema": "x"})
    with pytest.raises(NoSchemaError, match="subject proto is PROTOBUF, not AVRO"):
        known.latest("proto", AVRO)
    with pytest.raises(RegistryError, match=r"no schema registry answers at http://127\.0\.0\.1:1 "):
        Registry("http://127.0.0.1:1").latest("a", AVRO)
    with pytest.raises(RegistryError, match="is no address of a schema registry"):
        Registry("127.0.0.1:8081")


def test_a_number_that_is_not_known_is_asked_for_once_in_a_while(registry: SchemaRegistry) -> None:
    now_s = [100.0]
    known = Registry(registry.address, clock=lambda: now_s[0])
    for _ in range(3):
        with pytest.raises(NoSchemaError, match="has no schema 1: Schema 1 not found"):
            known.schema(1, AVRO)
    assert len(registry.asked) == 1
    registry.add("late", {"schema": json.dumps(OLD)})
    now_s[0] += 31
    assert known.schema(1, AVRO) == avro(OLD)


def test_values_of_an_unknown_schema_ask_once_for_all_tasks_of_a_process(registry: SchemaRegistry) -> None:
    for _ in range(2):
        read = codecs.reader(Decoding(schema=avro(NEW), registry=registry.address))
        for _ in range(5):
            assert "has no schema 99" in read(frame(99))[codecs.CORRUPT]
    assert registry.asked == ["/schemas/ids/99"]


def test_a_registry_that_cannot_answer_just_now_is_asked_again(registry: SchemaRegistry) -> None:
    known = Registry(registry.address, pauses_s=(0.01, 0.01))
    registry.unavailable = 2
    assert known.register("a", avro(OLD)) == 1
    assert len(registry.asked) == 3
    registry.unavailable = 3
    with pytest.raises(RegistryError, match="refuses subject a: Error while forwarding the request"):
        known.latest("a", AVRO)
    assert known.latest("a", AVRO).id == 1


def test_what_a_schema_refers_to_is_fetched_too(registry: SchemaRegistry) -> None:
    """Each once, behind what it refers to itself; also where two refer to each other."""

    def referring(*names: str) -> list[dict[str, Any]]:
        return [{"name": f"{name}.proto", "subject": name, "version": 1} for name in names]

    def content(text: str, *names: str) -> dict[str, Any]:
        return {"schemaType": PROTOBUF, "schema": text, "references": referring(*names)}

    registry.add("c", content("C"))
    registry.add("b", content("B", "c", "a"))
    registry.add("a", content("A", "b", "c"))
    registry.add("main", content("M", "a", "b"))
    found = Registry(registry.address).latest("main", PROTOBUF).schema
    assert found.references == (("c.proto", "C"), ("b.proto", "B"), ("a.proto", "A"))
    registry.add("lost", content("L", "nobody"))
    with pytest.raises(NoSchemaError, match="has no version 1 of subject nobody"):
        Registry(registry.address).latest("lost", PROTOBUF)


def test_a_registry_with_a_password() -> None:
    with running_registry(protected=True) as running:
        with pytest.raises(RegistryError, match="refuses subject a: Unauthorized"):
            Registry(running.address).latest("a", AVRO)
        named = running.address.replace("http://", "http://user:secret@")
        assert Registry(named).register("a", avro(OLD)) == 1


def test_values_are_read_with_the_schema_that_they_were_written_with(registry: SchemaRegistry) -> None:
    known = Registry(registry.address)
    old, new = (known.register(SUBJECT, avro(schema)) for schema in (OLD, NEW))
    read = codecs.reader(Decoding(schema=avro(NEW), registry=registry.address))
    assert read(value(old, OLD, {"id": 1})) == {"id": 1, "country": "de"}
    assert read(value(new, NEW, {"id": 2, "country": "fr"})) == {"id": 2, "country": "fr"}
    for bad, problem in ((b"{}", "does not begin with the five bytes"), (frame(99), "has no schema 99")):
        assert problem in read(bad)[codecs.CORRUPT]
    assert schema_id_of(frame(70_000) + b"x") == 70_000
    lost = codecs.reader(Decoding(schema=avro(NEW), registry="http://127.0.0.1:1"))
    with pytest.raises(RegistryError):
        lost(frame(1))


def test_columns_and_queries_by_a_registry(
    spark: SparkSession, broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """A topic with values of two schemas: read by a column, written by a column, and queried."""
    from forebay.spark import from_avro, to_avro

    bootstrap, brokers = broker.bootstrap, Brokers(bootstrap=broker.bootstrap)
    make(bootstrap, reg_orders=1, reg_out=1, reg_letters=1)
    known = Registry(registry.address)
    old, new = (known.register(SUBJECT, avro(schema)) for schema in (OLD, NEW))
    values = [value(old, OLD, {"id": 1}), value(new, NEW, {"id": 2, "country": "fr"})]
    send(bootstrap, "reg-orders", [Sent(one) for one in values] + [Sent(None)])

    rows = brokers.read(spark, "reg-orders")
    order = from_avro("value", registry=registry.address, subject=SUBJECT)
    decoded = rows.select(order.alias("order")).select("order.*")
    expected = [(1, "de"), (2, "fr"), (None, None)]
    assert [tuple(row) for row in decoded.collect()] == expected
    again = rows.select(to_avro(order, registry=registry.address, subject=SUBJECT).alias("value")).collect()
    assert [bytes(row.value)[:5] for row in again[:2]] == [frame(new)] * 2
    assert bytes(again[1].value) == values[1]
    with pytest.raises(ConfigError, match="there is no mode LENIENT"):
        from_avro("value", registry=registry.address, subject=SUBJECT, mode="LENIENT")

    send(bootstrap, "reg-orders", [Sent(b"no avro")])
    query = f"""SELECT id, country FROM stream('reg-orders',
                format => 'confluent-avro', registry => '{registry.address}') WHERE id IS NOT NULL"""
    settings = SqlSettings(trigger=ONCE, checkpoint=str(tmp_path), dead_letters="reg-letters")
    facts = sql(spark, brokers, query, "reg-out", settings).wait().facts
    assert (facts["rows written"], facts["dead letters"]) == (2, 1)
    found = [json.loads(one.value or b"") for one in contents(bootstrap, "reg-out")]
    assert [(one["id"], one["country"]) for one in found] == expected[:2]


PROTO = """
syntax = "proto3";
package shop;
import "shop/line.proto";
message Other { int32 x = 1; }
message Order { int64 id = 1; string country = 2; repeated shop.Line lines = 3; }
"""
LINE = 'syntax = "proto3"; package shop; message Line { string item = 1; int32 count = 2; }'
JSON_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "country": {"type": "string"}},
    "required": ["id"],
}


def write(rows: DataFrame, bootstrap: str, topic: str) -> None:
    """In their order."""
    writer = rows.coalesce(1).write.format("forebay").mode("append")
    writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()


def test_columns_and_queries_of_protobuf_and_json(
    spark: SparkSession, broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """Written by a column, read by a column, and queried; what does not fit is a dead letter."""
    from pyspark.sql import functions as F

    from forebay.spark import from_json_schema, from_protobuf, to_json_schema, to_protobuf

    bootstrap, brokers, where = broker.bootstrap, Brokers(bootstrap=broker.bootstrap), registry.address
    make(bootstrap, reg_proto=1, reg_json=1, reg_results=1, reg_misfits=1)
    registry.add("line", {"schemaType": PROTOBUF, "schema": LINE})
    reference = {"name": "shop/line.proto", "subject": "line", "version": 1}
    content = {"schemaType": PROTOBUF, "schema": PROTO, "references": [reference]}
    registry.add("reg-proto-value", content)

    line = "named_struct('item', 'pen', 'count', 2)"
    order = F.expr(f"named_struct('id', id, 'country', IF(id = 1, 'de', NULL), 'lines', array({line}))")
    by_proto = to_protobuf(order, registry=where, subject="reg-proto-value", message="Order")
    write(spark.range(1, 4).select(by_proto.alias("value")), bootstrap, "reg-proto")
    fields = F.struct("id", F.lit("fr").alias("country"))
    schema = json.dumps(JSON_SCHEMA)
    by_json = to_json_schema(fields, registry=where, subject="reg-json-value", schema=schema)
    write(spark.range(2, 5).select(by_json.alias("value")), bootstrap, "reg-json")
    number = Registry(where).latest("reg-json-value", JSON).id
    assert contents(bootstrap, "reg-json")[0].value == frame(number) + b'{"id":2,"country":"fr"}'

    decoded = from_protobuf("value", registry=where, subject="reg-proto-value", message="shop.Order")
    found = brokers.read(spark, "reg-proto").select(decoded.alias("o")).select("o.*").collect()
    assert [(row.id, row.country, row.lines[0].asDict()) for row in found] == [
        (n, "de" if n == 1 else "", {"item": "pen", "count": 2}) for n in (1, 2, 3)
    ]
    decoded = from_json_schema("value", registry=where, subject="reg-json-value", mode="PERMISSIVE")
    send(bootstrap, "reg-json", [Sent(frame(number) + b'{"id":"x"}')])
    found = brokers.read(spark, "reg-json").select(decoded.alias("o")).collect()
    assert [None if row.o is None else row.o.id for row in found] == [2, 3, 4, None]

    query = """SELECT id, lines[0].count AS count FROM stream('reg-proto',
               format => 'confluent-protobuf', message => 'Order') WHERE id > 1"""
    settings = SqlSettings(registry=where, trigger=ONCE, checkpoint=str(tmp_path / "protobuf"))
    assert sql(spark, brokers, query, "reg-results", settings).wait().facts["rows written"] == 2
    query = "SELECT id, country FROM stream('reg-json', format => 'confluent-json') WHERE id = 4"
    checkpoint = str(tmp_path / "json")
    settings = replace(settings, checkpoint=checkpoint, dead_letters="reg-misfits")
    facts = sql(spark, brokers, query, "reg-results", settings).wait().facts
    assert (facts["rows written"], facts["dead letters"]) == (1, 1)
    results = [(one.value or b"").decode() for one in contents(bootstrap, "reg-results")]
    assert results == [*(f'{{"id":{n},"count":2}}' for n in (2, 3)), '{"id":4,"country":"fr"}']
    (letter,) = contents(bootstrap, "reg-misfits")
    assert any(b"no JSON of its schema" in (text or b"") for _, text in letter.headers)
