"""Two revisions beside each other: what counts as a change, and a round of a load on both."""

from __future__ import annotations

import subprocess

import pytest
from bench.against import Row, rows_against, summary
from bench.server import ROOT, BenchError


def row(*ratios: float, less_is_better: bool = True) -> Row:
    return Row("load: CPU", "s", less_is_better, list(ratios), [1.0] * len(ratios))


@pytest.mark.parametrize(
    ("ratios", "less_is_better", "change"),
    [
        ((1.05, 1.06, 1.07, 1.08), True, "WORSE"),
        ((1.05, 1.06, 1.07, 1.08), False, "better"),
        ((0.90, 0.91, 0.92), True, "better"),
        ((0.90, 0.91, 0.92), False, "WORSE"),
        ((1.01, 1.02, 1.02), True, ""),
        ((0.80, 0.95, 1.10, 1.30, 1.30), True, ""),
    ],
)
def test_a_change_is_named_if_it_is_larger_than_the_spread(
    ratios: tuple[float, ...], less_is_better: bool, change: str
) -> None:
    assert row(*ratios, less_is_better=less_is_better).change == change


def test_the_summary_names_what_is_worse() -> None:
    assert "load: CPU (1.06 x)" in summary([row(1.05, 1.06, 1.07)])
    assert summary([row(1.0, 1.0, 1.01)]).startswith("nothing is worse")


def test_a_revision_that_is_not_there_is_an_error() -> None:
    with pytest.raises(BenchError, match="no-such-revision"):
        rows_against("no-such-revision", 1, ["round trip"])


def test_a_load_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(BenchError, match="produce 16 KB"):
        rows_against("HEAD", 1, ["no such load"])


def test_brokers_of_both_revisions_get_the_same_load() -> None:
    known = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False)
    if known.returncode:
        pytest.skip("this is not a git checkout")
    rows = rows_against("HEAD", 1, ["round trip"])
    assert [each.name for each in rows] == ["produce round trip: p50", "produce round trip: p99"]
    assert all(each.ours[0] > 0 and each.theirs[0] > 0 for each in rows)
