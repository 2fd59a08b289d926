"""Messages as rows: the fields of a value by its schema, and where the message was.

JSON by a schema in Spark's notation or by one that a sample suggests, Avro by a schema file, what a schema
registry knows, or plain text.
A value that does not fit its schema becomes a row of nulls with the reason in `_corrupt_record`: one bad
message must not stop a stream, and must not pass unseen either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.lazy import dataclass
from forebay.spark.dead_letters import dead_letters
from forebay.spark.pipelines.brokers import Brokers
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.schemas import codecs, registry
from forebay.spark.schemas.codecs import CORRUPT
from forebay.spark.schemas.columns import latest
from forebay.spark.schemas.decoding import Decoding
from forebay.spark.schemas.registry import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

JSON, TEXT, AVRO, CONFLUENT_AVRO = ("json", "text", "avro", "confluent-avro")
KINDS: Mapping[str, str] = {
    CONFLUENT_AVRO: registry.AVRO,
    "confluent-protobuf": registry.PROTOBUF,
    "confluent-json": registry.JSON,
}
"""The formats of schema registries, and how these name them."""
FORMATS = (JSON, TEXT, AVRO, *KINDS)
_NAMES = {registry.AVRO: "Avro", registry.PROTOBUF: "Protobuf", registry.JSON: "JSON"}
_FIELDS, _REASON = "_forebay_fields", "_forebay_reason"
SAMPLE_RECORDS = 1000
SAMPLE_BYTES = 16 << 20
META = {
    "_key": "CAST(key AS STRING)",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}
"""Columns about a message beside its value, and their names in the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    format: str
    schema: str = ""
    """JSON: Spark's notation (`id INT, at TIMESTAMP`). Text: none. All others: the schema itself."""
    registry: str = ""
    """Where the schemas of single values are asked for."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Schemas that it refers to, by name."""
    schema_id: int | None = None
    message: str = ""
    """Protobuf: which message of the schema."""

    def to_keep(self) -> dict[str, Any]:
        """For a file: without the password of the registry."""
        address = registry.Registry(self.registry).address if self.registry else ""
        return {**asdict(self), "registry": address}

    def decoding(self) -> Decoding:
        kind = KINDS.get(self.format, registry.AVRO)
        return Decoding(
            schema=Schema(kind, self.schema, tuple(self.references.items())),
            schema_id=self.schema_id,
            registry=self.registry,
            framed=self.format in KINDS,
            message=self.message,
        )


def value_format(format: str | None, schema: str | None) -> ValueFormat | None:
    """From what the user gave; None when the schema has to be found out."""
    if schema is not None and schema.startswith("@"):
        path = Path(schema[1:])
        schema = _content(path)
        format = format or (AVRO if path.suffix == ".avsc" else JSON)
    format = format or JSON
    if format not in FORMATS:
        raise PipelineError(f"there is no format {format}: choose {', '.join(FORMATS)}")
    if format == TEXT:
        return ValueFormat(format=TEXT)
    if format in KINDS and format != CONFLUENT_AVRO:
        raise PipelineError(
            f"values in {format} need a registry and no schema: name it with registry => 'http://HOST:8081'"
        )
    if schema is None and format != JSON:
        raise PipelineError(f"values in {format} need a schema: name its file with schema @FILE.avsc")
    return ValueFormat(format=format, schema=schema) if schema is not None else None


def registered(
    format: str, registry: str, subject: str, message: str = "", *, patient: bool = True
) -> ValueFormat:
    """Values of a registry, by the latest schema of a subject.

    `patient`: a registry that does not answer is asked again a few times.
    """
    how = latest(KINDS[format], registry, subject, message, patient=patient)
    return ValueFormat(
        format=format,
        schema=how.schema.text,
        registry=registry,
        references=dict(how.schema.references),
        schema_id=how.schema_id,
        message=message,
    )


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"the schema in {path} cannot be read: {error.strerror}") from None


def infer(spark: SparkSession, brokers: Brokers, topic: str) -> ValueFormat:
    """The schema of JSON that fits the first messages of a topic."""
    first = brokers.first_values(topic, SAMPLE_RECORDS, SAMPLE_BYTES)
    texts = [value.decode(errors="replace") for value in first]
    found = spark.read.json(spark.sparkContext.parallelize(texts, 1)).schema if texts else None
    fields = [field for field in found or [] if field.name != CORRUPT]
    if not fields:
        raise PipelineError(
            f"topic {topic} has no JSON objects from which a schema could be inferred: give one with"
            f" --schema '{topic}=id INT, name STRING'"
        )
    schema = ", ".join(f"{_quoted(field.name)} {_notation(field.dataType)}" for field in fields)
    return ValueFormat(format=JSON, schema=schema)


def _notation(kind: DataType) -> str:
    """A type in Spark's notation, with the names of fields in quotes: JSON may name them in any way."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {_notation(field.dataType)}' for field in kind)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_notation(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_notation(kind.keyType)}, {_notation(kind.valueType)}>"
    return kind.simpleString()


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def decode(rows: DataFrame, values: ValueFormat) -> DataFrame:
    """The fields of the value, then what is known of the message."""
    if values.format == TEXT:
        return rows.selectExpr("CAST(value AS STRING) AS value", *_meta())
    if values.format == JSON:
        return _from_json(rows, values.schema)
    return codecs.decode(rows.selectExpr("value", *_meta()), values.decoding())


def misfits(rows: DataFrame, values: ValueFormat) -> DataFrame | None:
    """Dead letters of the values that do not fit; None for text, which always does."""
    from pyspark.sql import functions as F

    if values.format == TEXT:
        return None
    if values.format == JSON:
        found = rows.withColumn(_FIELDS, _json_fields(values.schema)).where(
            f"{_FIELDS}.{CORRUPT} IS NOT NULL"
        )
        return dead_letters(found, f"the value is no JSON of the schema {values.schema}")
    # The decoder takes the column value away.
    kept = rows.withColumn(_FIELDS, F.struct(*rows.columns)).select("value", _FIELDS)
    how = values.decoding()
    found = codecs.decode(kept, how)
    found = found.where(f"{CORRUPT} IS NOT NULL").select(f"{_FIELDS}.*", F.col(CORRUPT).alias(_REASON))
    said = F.lit(f"the value is no {_NAMES[how.schema.kind]} of its schema: ")
    return dead_letters(found, F.concat(said, F.col(_REASON)))


def _from_json(rows: DataFrame, schema: str) -> DataFrame:
    from pyspark.sql import functions as F

    fields = _json_fields(schema).alias("fields")
    return rows.select(fields, *map(F.expr, _meta())).select("fields.*", *META)


def _json_fields(schema: str) -> Column:
    from pyspark.sql import functions as F

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return F.from_json(F.col("value").cast("string"), f"{schema}, {CORRUPT} STRING", options)


def _meta() -> list[str]:
    return [f"{source} AS {name}" for name, source in META.items()]
