"""The Java share consumers that `make bench-kafka` loads brokers with: they count what is finished."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import versus_shares
from bench.kafka_server import why_not
from bench.server import ForebayServer
from bench.share_load import ShareLoad
from bench.share_members import finished_records
from bench.versus_shares import DELIVERIES_WARM_UP, consume, deliver, joined_side

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]


def test_java_share_consumers_have_everything_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    monkeypatch.setattr(versus_shares, "MESSAGES", 20_000)
    monkeypatch.setattr(versus_shares, "WINDOW", 10_000)
    monkeypatch.setattr(versus_shares, "DELIVERIES", 20)
    with (
        ForebayServer(tmp_path, "broker") as server,
        ShareLoad(tmp_path) as load,
        joined_side(load, "Forebay", server, partitions=2, members=8) as side,
    ):
        assert 10_000 <= consume(load, side).requests <= 20_000
        assert deliver(load, side).p50_us > 0
        total = 20_000 + DELIVERIES_WARM_UP + 20
        assert finished_records(side.client, side.group) == total
