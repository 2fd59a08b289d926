"""How a job ends: by itself, or because somebody has stopped its query."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.spark.pipelines.jobs import Job


def ended(reached: int, latest: int) -> Any:
    """A query that is over, without an error, and its last batch."""
    source = {"endOffset": json.dumps({"0": reached}), "latestOffset": json.dumps({"0": latest})}
    batch = {"batchId": 0, "numInputRows": 5, "processedRowsPerSecond": 1.0, "sources": [source]}
    return SimpleNamespace(isActive=False, recentProgress=[batch], lastProgress=batch, exception=lambda: None)


@pytest.mark.parametrize(("reached", "finished"), [(10, True), (9, False)])
def test_a_query_that_was_stopped_from_outside_is_not_at_its_end(reached: int, finished: bool) -> None:
    told: list[bool] = []
    job = Job("a job", ended(reached, 10), ends=True, closed=told.append)
    assert job.wait().facts["rows"] == 5
    assert told == [finished]


@pytest.mark.parametrize("nothing_left", [True, False])
def test_a_query_without_a_batch_asks_what_was_left(nothing_left: bool) -> None:
    told: list[bool] = []
    query: Any = SimpleNamespace(isActive=False, recentProgress=[], lastProgress=None, exception=lambda: None)
    Job("a job", query, ends=True, closed=told.append, nothing_left=lambda: nothing_left).wait()
    assert told == [nothing_left]
