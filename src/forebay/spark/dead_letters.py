"""Rows that cannot be used, as dead letters: what they were, where they came from, and why.

The headers are those of share groups' dead letters (KIP-1191), so that `forebay dead-letter list`, `show` and
`redrive` know them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PREFIX = "__dlq.errors."
NEEDED = ("key", "value", "topic", "partition", "offset")
"""Columns of the source that a letter is made of; its headers and timestamp too, where they are there."""
_HEADERS = "array<struct<key: string, value: binary>>"


def dead_letters(rows: DataFrame, reason: Column | str) -> DataFrame:
    """Messages for a dead-letter topic, from rows of a topic; `reason` is a column, or the text itself.

    They have the columns key, value, headers and timestamp, and are written like any other rows. `together`
    writes them in one transaction with others.
    """
    from pyspark.sql import functions as F

    missing = [name for name in NEEDED if name not in rows.columns]
    if missing:
        raise ConfigError(f"a dead letter is made of the source's columns: {', '.join(missing)} is missing")
    about = {
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "message": F.lit(reason) if isinstance(reason, str) else reason,
    }
    headers = F.array(
        *(
            F.struct(F.lit(f"{PREFIX}{name}").alias("key"), column.cast("binary").alias("value"))
            for name, column in about.items()
        )
    ).cast(_HEADERS)
    if "headers" in rows.columns:
        headers = F.concat(F.coalesce(F.col("headers"), F.array().cast(_HEADERS)), headers)
    others = [name for name in ("timestamp",) if name in rows.columns]
    return rows.select("key", "value", *others, headers.alias("headers"))


def together(rows: DataFrame, letters: DataFrame, *, topic: str, letters_topic: str) -> DataFrame:
    """Messages and dead letters for one write, to two topics: with `delivery=exactly-once`, all or none.

    `rows` has columns of messages (`value`, and `key`, `headers`, `timestamp`, `partition` if it has them).
    """
    if "topic" in rows.columns:
        raise ConfigError("there is a column topic: rows go to the topic that is given, drop the column")
    good, bad = as_messages(rows, topic), as_messages(letters, letters_topic)
    return good.unionByName(bad, allowMissingColumns=True)


def as_messages(rows: DataFrame, topic: str) -> DataFrame:
    """The same rows with a column that names their topic, and key and value as bytes."""
    from pyspark.sql import functions as F

    as_bytes: dict[str, Column] = {
        name: F.col(name).cast("binary") for name in ("key", "value") if name in rows.columns
    }
    return rows.withColumns({**as_bytes, "topic": F.lit(topic)})
