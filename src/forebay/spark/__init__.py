"""Topics as tables and streams of Spark: `spark.read.format("forebay")` and its three siblings.

The source itself is found by Spark through the package `pyspark_forebay`; what people import from here are
`session`, `use_session`, `between`, `lookup`, `upsert`, and what turns values of a schema registry into
columns and back. Executors import this package too, whenever a worker starts, so it stays light: the last
are imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.spark.lookups import lookup
from forebay.spark.narrowing import between
from forebay.spark.session import session
from forebay.spark.threads import use_session
from forebay.spark.update_mode import upsert

if TYPE_CHECKING:
    from forebay.spark.schemas.columns import (
        from_avro,
        from_json_schema,
        from_protobuf,
        to_avro,
        to_json_schema,
        to_protobuf,
    )

_COLUMNS = ("from_avro", "from_protobuf", "from_json_schema", "to_avro", "to_protobuf", "to_json_schema")

__all__ = [
    "session",
    "use_session",
    "between",
    "lookup",
    "upsert",
    "from_avro",
    "from_protobuf",
    "from_json_schema",
    "to_avro",
    "to_protobuf",
    "to_json_schema",
]


def __getattr__(name: str) -> object:
    if name not in _COLUMNS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from forebay.spark.schemas import columns

    return getattr(columns, name)
