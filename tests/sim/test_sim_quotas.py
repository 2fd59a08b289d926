"""Stories in which clients go beyond their quotas: they wait, and nothing is lost, doubled or reordered."""

from __future__ import annotations

from collections import Counter

import pytest

from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.core.quotas.keys import QuotaKey
from forebay.sim.simulation import Story, simulate
from support.brokers.loop_guard import loops_guarded

STORIES = 5


def test_clients_that_wait_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: Counter[QuotaKey] = Counter()
    count = ClientQuotas.count

    def counted(self: ClientQuotas, key: QuotaKey, wait_s: float) -> None:
        waits[key] += 1
        count(self, key, wait_s)

    monkeypatch.setattr(ClientQuotas, "count", counted)
    for seed in range(1, 1 + STORIES):
        with loops_guarded():
            ending = simulate(Story(seed=seed, plot="quotas"))
        assert ending.breach is None, ending
    assert waits[QuotaKey.PRODUCE] > STORIES and waits[QuotaKey.FETCH] > STORIES, waits
    assert waits[QuotaKey.MUTATION] > 0, waits
