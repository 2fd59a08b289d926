"""Archives as tables, without Spark: which files are in them, wherever they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.spark.pipelines.archiving.hour_files import Written, publish, write_hours
from forebay.spark.pipelines.archiving.layout import DELTA, ICEBERG, Position, batch_file
from forebay.spark.pipelines.archiving.tables.delta import Delta
from forebay.spark.pipelines.archiving.tables.iceberg import Iceberg
from forebay.spark.pipelines.archiving.tables.table import open_table
from forebay.spark.pipelines.lake import Lake
from support.spark.archives import MINUTE_US, QUERY, SIX_US, Message, record_batch, seen_in


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
@pytest.mark.parametrize("name", ["lake", "my lake", "übersicht"])
def test_the_files_of_a_table_are_found_in_any_directory(tmp_path: Path, form: str, name: str) -> None:
    lake = Lake(str(tmp_path / name))
    position = Position(topic="orders", format=form, partitions=1)
    for batch in range(2):
        messages = [Message(0, 2 * batch + n, SIX_US + (60 * n + batch) * MINUTE_US) for n in range(2)]
        told = write_hours(lake, batch_file(QUERY, batch, 0), iter([record_batch(messages)]))
        written = [Written(**row) for reported in told for row in reported.to_pylist()]
        publish(lake, written)
        open_table(lake, position).add(written, QUERY, batch)
    table = Delta(lake) if form == DELTA else Iceberg(lake, position.topic)
    everything = [(0, n) for n in range(4)]
    assert seen_in(lake, table.paths()) == everything
    if isinstance(table, Delta):
        assert table.compact(1 << 20)["new files"] == 2
        assert seen_in(lake, table.paths()) == everything
