"""How a job ends: by itself, or because somebody has stopped its query."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.spark.pipelines.jobs import Job


def ended(reached: int, latest: int) -> Any:
    """A query that is over, without an error, and its last batch."""
    source = {"endOffset": json.dumps({"0": reached}), "latestOffset": json.dumps({"0": latest})}
    batch = {"batchId": 0, "numInputRows": 5, "processedRowsPerSecond": 1.0, "sources": [source]}
    return SimpleNamespace(isActive=False, recentProgress=[batch], lastProgress=batch, exception=lambda: None)


def closing(told: list[str]) -> Callable[[], None]:
    return lambda: told.append("closed")


def forgetting(told: list[str]) -> Callable[[], None]:
    return lambda: told.append("forgotten")


@pytest.mark.parametrize(("reached", "finished"), [(10, True), (9, False)])
def test_a_query_that_was_stopped_from_outside_is_not_at_its_end(reached: int, finished: bool) -> None:
    told: list[str] = []
    job = Job("a job", ended(reached, 10), ends=True, closed=closing(told), forget=forgetting(told))
    assert job.wait().facts["rows"] == 5
    assert told == ["closed", "forgotten"][: 1 + finished]


def test_a_job_is_forgotten_when_the_caller_says_so() -> None:
    told: list[str] = []
    job = Job("a job", ended(10, 10), ends=True, closed=closing(told), forget=forgetting(told))
    job.wait(forget=False)
    assert told == ["closed"]
    job.forget()
    job.forget()
    assert told == ["closed", "forgotten"]


@pytest.mark.parametrize("nothing_left", [True, False])
def test_a_query_without_a_batch_asks_what_was_left(nothing_left: bool) -> None:
    told: list[str] = []
    query: Any = SimpleNamespace(isActive=False, recentProgress=[], lastProgress=None, exception=lambda: None)
    Job("a job", query, ends=True, forget=forgetting(told), nothing_left=lambda: nothing_left).wait()
    assert told == ["forgotten"] * nothing_left
