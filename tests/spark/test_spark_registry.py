"""Avro with a schema registry, which is a server of these tests: see `support/spark/schema_registry.py`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from forebay.errors import ConfigError
from forebay.spark.pipelines import ONCE, Brokers, SqlSettings, sql
from forebay.spark.pipelines.queries import avro_values
from forebay.spark.registry import NoSchemaError, Registry, RegistryError, frame, schema_id_of
from support.brokers.broker_process import BrokerProcess
from support.spark.schema_registry import SchemaRegistry, running_registry
from support.spark.topics import Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def value(schema_id: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return frame(schema_id) + stream.getvalue()


def test_schemas_are_asked_for_once_and_registered(registry: SchemaRegistry) -> None:
    known = Registry(f"{registry.address}/")
    old = known.register("a/b", json.dumps(OLD))
    assert known.register("a/b", json.dumps(NEW)) == old + 1
    assert known.latest("a/b") == (old + 1, json.dumps(NEW))
    registry.asked.clear()
    assert [known.schema(old) for _ in range(3)] == [json.dumps(OLD)] * 3
    assert len(registry.asked) == 1


def test_what_a_registry_cannot_give_is_said(registry: SchemaRegistry) -> None:
    known = Registry(registry.address)
    with pytest.raises(NoSchemaError, match="has no subject nobody: Subject 'nobody' not found"):
        known.latest("nobody")
    with pytest.raises(NoSchemaError, match="has no schema 9: Schema 9 not found"):
        known.schema(9)
    registry.add("proto", {"schemaType": "PROTOBUF", "schema": "x"})
    with pytest.raises(NoSchemaError, match="subject proto is PROTOBUF, not Avro"):
        known.latest("proto")
    with pytest.raises(RegistryError, match=r"no schema registry answers at http://127\.0\.0\.1:1 "):
        Registry("http://127.0.0.1:1").latest("a")
    with pytest.raises(RegistryError, match="is no address of a schema registry"):
        Registry("127.0.0.1:8081")


def test_a_registry_with_a_password() -> None:
    with running_registry(protected=True) as running:
        with pytest.raises(RegistryError, match="refuses subject a: Unauthorized"):
            Registry(running.address).latest("a")
        named = running.address.replace("http://", "http://user:secret@")
        assert Registry(named).register("a", json.dumps(OLD)) == 1


def test_values_are_read_with_the_schema_that_they_were_written_with(registry: SchemaRegistry) -> None:
    known = Registry(registry.address)
    old, new = (known.register(SUBJECT, json.dumps(schema)) for schema in (OLD, NEW))
    read = avro_values.reader(json.dumps(NEW), framed=True, registry=registry.address)
    assert read(value(old, OLD, {"id": 1})) == {"id": 1, "country": "de"}
    assert read(value(new, NEW, {"id": 2, "country": "fr"})) == {"id": 2, "country": "fr"}
    for bad, problem in ((b"{}", "does not begin with the five bytes"), (frame(99), "has no schema 99")):
        assert problem in read(bad)[avro_values.CORRUPT]
    assert schema_id_of(frame(70_000) + b"x") == 70_000
    lost = avro_values.reader(json.dumps(NEW), framed=True, registry="http://127.0.0.1:1")
    with pytest.raises(RegistryError):
        lost(frame(1))


def test_columns_and_queries_by_a_registry(
    spark: SparkSession, broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """A topic with values of two schemas: read by a column, written by a column, and queried."""
    from forebay.spark.avro import from_avro, to_avro

    bootstrap, brokers = broker.bootstrap, Brokers(bootstrap=broker.bootstrap)
    make(bootstrap, reg_orders=1, reg_out=1, reg_letters=1)
    known = Registry(registry.address)
    old, new = (known.register(SUBJECT, json.dumps(schema)) for schema in (OLD, NEW))
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
