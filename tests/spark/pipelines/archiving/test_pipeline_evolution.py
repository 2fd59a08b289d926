"""Decoded archives whose schema changes: new fields in the same directory, files and tables alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from forebay.spark.pipelines import ArchiveSettings, Brokers, DecodeSettings, archive, compact
from forebay.spark.pipelines.archiving.evolution import widened
from forebay.spark.pipelines.archiving.tables.iceberg import Iceberg
from forebay.spark.pipelines.lake import Lake
from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding
from forebay.spark.schemas.registry import AVRO, Registry, Schema
from support.brokers.broker_process import BrokerProcess
from support.spark.schema_registry import SchemaRegistry, running_registry
from support.spark.topics import Sent, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()
FORMS = ("parquet", "delta", "iceberg")


def struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


# -- what a column may become ------------------------------------------------------------------------------


def test_new_fields_come_behind_the_old_ones_at_every_depth() -> None:
    old = struct(id=INT, lines=pa.list_(struct(n=INT)), by=pa.map_(TEXT, struct(a=INT)))
    new = struct(
        who=TEXT, lines=pa.list_(struct(m=TEXT, n=INT)), by=pa.map_(TEXT, struct(a=INT, b=INT)), id=INT
    )
    found = widened(old, new, promotes=False)
    assert found.kind == struct(
        id=INT, lines=pa.list_(struct(n=INT, m=TEXT)), by=pa.map_(TEXT, struct(a=INT, b=INT)), who=TEXT
    )
    assert (found.added, found.kept) == (("lines.m", "by.b", "who"), ())


def test_a_field_that_the_new_schema_does_not_have_stays() -> None:
    found = widened(struct(id=INT, old=TEXT), struct(id=INT), promotes=False)
    assert found.kind == struct(id=INT, old=TEXT)
    assert (found.added, found.kept) == ((), ())


def test_a_type_changes_only_where_tables_can_promote_it() -> None:
    old, new = struct(id=INT, a=struct(x=pa.float32())), struct(id=LONG, a=struct(x=pa.float64()))
    assert widened(old, new, promotes=True).kind == new
    kept = widened(old, new, promotes=False)
    assert (kept.kind, kept.kept) == (old, ("id: int64", "a.x: double"))
    assert widened(new, old, promotes=True) == (new, (), ())  # what is narrower fits
    assert widened(old, struct(id=TEXT), promotes=True).kept == ("id: string",)


def test_names_that_differ_in_case_only_are_no_new_fields() -> None:
    found = widened(struct(id=INT), struct(id=INT, ID=INT), promotes=False)
    assert (found.kind, found.kept) == (struct(id=INT), ("ID: int32",))


# -- archives ----------------------------------------------------------------------------------------------


def order(*fields: dict[str, Any], line: tuple[str, ...] = ("n",)) -> Schema:
    lines = {"type": "record", "name": "Line", "fields": [_optional(name, "int") for name in line]}
    own = [{"name": "lines", "type": {"type": "array", "items": lines}}, *fields]
    return Schema(AVRO, json.dumps({"type": "record", "name": "Order", "fields": own}))


def _optional(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


FIRST = order({"name": "id", "type": "int"}, _optional("note", "string"))
SECOND = order({"name": "id", "type": "long"}, _optional("country", "string"), line=("n", "m"))


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as running:
        yield running


class Story:
    def __init__(self, broker: BrokerProcess, registry: SchemaRegistry, topic: str) -> None:
        self._broker, self._registry, self.topic = broker, registry, topic
        make(broker.bootstrap, **{topic: 1})

    def send(self, schema: Schema, *rows: dict[str, Any]) -> None:
        number = Registry(self._registry.address).register(f"{self.topic}-value", schema)
        write = codecs.writer(Decoding(schema=schema, schema_id=number))
        send(self._broker.bootstrap, self.topic, [Sent(write(row)) for row in rows])


def rows_in(spark: SparkSession, folder: Path, form: str, topic: str) -> list[Any]:
    """The fields by offset, as the usual reader of each format finds them."""
    if form == "delta":
        rows = DeltaTable(folder).to_pyarrow_table(columns=["offset", "fields"])
    elif form == "iceberg":
        rows = Iceberg(Lake(str(folder)), topic).table().scan(selected_fields=("offset", "fields")).to_arrow()
    else:
        found = spark.read.option("mergeSchema", "true").parquet(str(folder)).select("offset", "fields")
        rows = found.toArrow()
    return [row["fields"] for row in sorted(rows.to_pylist(), key=lambda row: int(row["offset"]))]


@pytest.mark.parametrize("form", FORMS)
def test_new_fields_are_in_the_same_archive(
    spark: SparkSession, broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path, form: str
) -> None:
    story, folder = Story(broker, registry, f"evolved-{form}"), tmp_path / "lake"
    decode = DecodeSettings(format="confluent-avro", registry=registry.address)
    brokers = Brokers(bootstrap=broker.bootstrap)

    def archived(decode: DecodeSettings | None = decode) -> Any:
        settings = ArchiveSettings(format=form, decode=decode)
        return archive(spark, brokers, story.topic, str(folder), settings).wait().facts

    story.send(FIRST, {"id": 1, "note": "a", "lines": [{"n": 1}]})
    assert "new fields" not in archived()
    story.send(SECOND, {"id": 2, "country": "de", "lines": [{"n": 2, "m": 3}]})
    told = archived(None)  # the archive knows its registry
    assert told["new fields"] == "lines.m, country"
    assert told.get("types not followed") == (None if form == "iceberg" else "id: int64")
    story.send(FIRST, {"id": 3, "note": "late", "lines": []})
    story.send(SECOND, {"id": 2**40, "country": "fr", "lines": []})
    last = archived()
    assert last["misfits"] == (0 if form == "iceberg" else 1)

    large: dict[str, Any] = {"id": 2**40, "note": None, "country": "fr", "lines": []}
    expected = [
        {"id": 1, "note": "a", "country": None, "lines": [{"n": 1, "m": None}]},
        {"id": 2, "note": None, "country": "de", "lines": [{"n": 2, "m": 3}]},
        {"id": 3, "note": None, "country": None, "lines": []},
        large if form == "iceberg" else None,
    ]
    assert rows_in(spark, folder, form, story.topic) == expected
    assert compact(spark, str(folder)).facts["new files"] == 1
    assert rows_in(spark, folder, form, story.topic) == expected


def test_an_archive_goes_on_with_its_schema_while_no_registry_answers(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    with running_registry() as registry:
        story = Story(broker, registry, "evolved-alone")
        decode = DecodeSettings(format="confluent-avro", registry=registry.address)
        story.send(FIRST, {"id": 1, "note": "a", "lines": []})
        settings = ArchiveSettings(decode=decode)
        brokers = Brokers(bootstrap=broker.bootstrap)
        archive(spark, brokers, story.topic, str(tmp_path), settings).wait()
        story.send(FIRST, {"id": 2, "note": "b", "lines": []})
    archive(spark, brokers, story.topic, str(tmp_path), settings).wait()
    assert [row["id"] for row in rows_in(spark, tmp_path, "parquet", story.topic)] == [1, 2]
