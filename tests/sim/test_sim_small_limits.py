"""Stories in which small requests take the ways of large ones, which no actor sends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from forebay.broker.fetch import large_fetch
from forebay.broker.fetch.large_fetch import LargeFetch
from forebay.broker.handlers import fetch as handler
from forebay.broker.produce.request import AppendRequest
from forebay.core.partition import record_rules
from forebay.sim.simulation import Story, simulate
from support.brokers.loop_guard import loops_guarded


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often large fetches were answered, and batches examined in threads."""
    monkeypatch.setattr(handler, "AT_ONCE_MAX", 0)
    monkeypatch.setattr(large_fetch, "_IN_A_STEP", 1)
    monkeypatch.setattr(record_rules, "AT_ONCE_RECORDS_MAX", 0)
    counted, start, examine = Counter[str](), LargeFetch.start, AppendRequest._examine

    def counted_start(fetch: LargeFetch, context: Any) -> Any:
        counted["large fetches"] += 1
        return start(fetch, context)

    def counted_examine(request: AppendRequest, entry: Any) -> None:
        counted["examined"] += 1
        counted["examined under an alias"] += entry.records is not entry.data.records
        examine(request, entry)

    monkeypatch.setattr(LargeFetch, "start", counted_start)
    monkeypatch.setattr(AppendRequest, "_examine", counted_examine)
    return counted


@pytest.mark.parametrize("seed", [7000, 7002])
def test_large_fetches_and_examined_batches_keep_all_promises(seed: int, met: Counter[str]) -> None:
    with loops_guarded():
        ending = simulate(Story(seed=seed, plot="copied-partitions"))
    assert ending.breach is None, "\n".join(ending.recent)
    assert met["large fetches"] and met["examined"]
    assert met["examined under an alias"], "choose another seed"
