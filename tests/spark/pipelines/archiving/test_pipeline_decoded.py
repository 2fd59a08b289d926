"""Archives with a column more, for the fields of the values: as files and as tables, gone on with, merged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from forebay.spark.pipelines import (
    ArchiveSettings,
    Brokers,
    DecodeSettings,
    PipelineError,
    archive,
    compact,
)
from forebay.spark.pipelines.archiving.compact import archive_files
from forebay.spark.pipelines.archiving.decoded import DecodedColumn, adder, decoded_values, looked_up
from forebay.spark.pipelines.archiving.layout import require_position
from forebay.spark.pipelines.archiving.tables.iceberg import Iceberg
from forebay.spark.pipelines.lake import Lake
from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding, SchemaError
from forebay.spark.schemas.registry import AVRO, JSON, PROTOBUF, Registry, Schema
from support.brokers.broker_process import BrokerProcess
from support.spark.schema_registry import SchemaRegistry, running_registry
from support.spark.topics import Sent, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

LINE = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": LINE}}],
}
PROTO_ORDER = """syntax = "proto3"; import "google/protobuf/duration.proto";
message Order { int64 id = 1; repeated Line lines = 2; google.protobuf.Duration took = 3; }
message Line { int32 n = 1; }"""
JSON_ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}},
    },
}
CASES = {
    "parquet": (PROTOBUF, PROTO_ORDER, "confluent-protobuf"),
    "delta": (AVRO, json.dumps(AVRO_ORDER), "confluent-avro"),
    "iceberg": (JSON, json.dumps(JSON_ORDER), "confluent-json"),
}
ROW: dict[str, Any] = {"id": 7, "lines": [{"n": 1}, {"n": 2}]}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry(protected=True) as running:
        yield running


@pytest.mark.parametrize("form", CASES)
def test_fields_are_a_column_of_the_archive(
    spark: SparkSession, broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path, form: str
) -> None:
    kind, text, decode = CASES[form]
    topic, folder = f"decoded-{form}", tmp_path / "lake"
    make(broker.bootstrap, **{topic: 1})
    where = registry.address.replace("http://", "http://user:secret@")
    schema = Schema(kind, text)
    number = Registry(where).register(f"{topic}-value", schema)
    value = codecs.writer(codecs.planned(Decoding(schema=schema, schema_id=number)))(ROW)
    brokers = Brokers(bootstrap=broker.bootstrap)
    settings = ArchiveSettings(format=form, decode=DecodeSettings(format=decode, registry=where))
    for sent in ([value, b"no such thing"], [None, value]):
        send(broker.bootstrap, topic, [Sent(one) for one in sent])
        archive(spark, brokers, topic, str(folder), settings).wait()
    expected = [(0, ROW), (1, None), (2, None), (3, ROW)]
    assert fields_in(folder) == expected
    assert "secret" not in (folder / "_forebay" / "position.json").read_text()

    assert compact(spark, str(folder)).facts["new files"] == 1
    assert fields_in(folder) == expected
    if form != "parquet":
        assert rows_of_table(folder, form, topic) == expected
    with pytest.raises(PipelineError, match=f"made with values decoded as {decode}"):
        other = next(name for _, _, name in CASES.values() if name != decode)
        changed = ArchiveSettings(format=form, decode=DecodeSettings(format=other, registry=where))
        archive(spark, brokers, topic, str(folder), changed)


def test_a_value_that_its_column_cannot_hold_has_no_fields() -> None:
    """It can be decoded: with a schema whose numbers are larger."""
    schemas = [
        Schema(AVRO, json.dumps({**LINE, "fields": [{"name": "n", "type": n}]})) for n in ("int", "long")
    ]
    narrow, wide = (Decoding(schema=schema, schema_id=1) for schema in schemas)
    values = [codecs.writer(narrow)({"n": 1}), codecs.writer(wide)({"n": 2**40}), None]
    column = DecodedColumn(narrow, pa.field("fields", pa.struct(codecs.fields(narrow))))
    rows = adder(column)(pa.table({"value": pa.array(values, pa.binary())}))
    assert rows.column("fields").to_pylist() == [{"n": 1}, None, None]
    assert rows.column("value").to_pylist() == values


def test_a_field_may_be_named_like_the_reason_of_a_misfit() -> None:
    """Spark's own readers of JSON name a column so."""
    text = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": codecs.CORRUPT, "type": ["null", "string"]}]}
    )
    how = Decoding(schema=Schema(AVRO, text), framed=False)
    column = DecodedColumn(how, pa.field("fields", pa.struct(codecs.fields(how))))
    values = pa.chunked_array([pa.array([b"\x02\x02x", b"\x00", b"\x07", None], pa.binary())])
    fields, reasons = decoded_values(column, values)
    assert fields.to_pylist() == [{codecs.CORRUPT: "x"}, {codecs.CORRUPT: None}, None, None]
    assert [reason is not None for reason in reasons] == [False, False, True, False]
    with pytest.raises(SchemaError, match="the schema has a field _corrupt_record"):
        codecs.decode(None, how)  # type: ignore[arg-type]


def test_a_message_without_fields_is_refused_when_the_archive_is_made(registry: SchemaRegistry) -> None:
    where = registry.address.replace("http://", "http://user:secret@")
    Registry(where).register("a-value", Schema(PROTOBUF, 'syntax = "proto3"; message A {}'))
    with pytest.raises(SchemaError, match="no column for a message without fields"):
        looked_up(DecodeSettings(format="confluent-protobuf", registry=where), "a")


def fields_in(folder: Path) -> list[tuple[int, Any]]:
    """Offset and fields of what the files hold."""
    lake = Lake(str(folder))
    found = []
    for path in archive_files(lake, require_position(lake)):
        rows = pq.ParquetFile(folder / path).read(["offset", "fields"])
        found += list(zip(rows.column(0).to_pylist(), map(known, rows.column(1).to_pylist()), strict=True))
    return sorted(found, key=lambda row: row[0])


def rows_of_table(folder: Path, form: str, topic: str) -> list[tuple[int, Any]]:
    if form == "delta":
        rows = DeltaTable(folder).to_pyarrow_table(columns=["offset", "fields"])
    else:
        rows = Iceberg(Lake(str(folder)), topic).table().scan(selected_fields=("offset", "fields")).to_arrow()
    found = zip(rows["offset"].to_pylist(), map(known, rows["fields"].to_pylist()), strict=True)
    return sorted(found, key=lambda row: row[0])


def known(fields: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if fields is None else {name: fields[name] for name in ROW}
