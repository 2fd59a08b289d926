"""Who waits for appends is told of the outcome, whatever happens to others who wait."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, cast

import pytest

from forebay.broker.partition.long_polls import Arrivals
from forebay.broker.partition.partition import Partition
from forebay.broker.produce.flush import GroupCommit
from forebay.broker.produce.write_cycle import ACKS_ALL, Appended, Unacknowledged, WriteCycle
from forebay.broker.telemetry.metrics import Metrics


class _Synced:
    """What a partition looks like to who waits for a sync of its disk; its own log and files as well."""

    commits_at_once = True
    is_leader = True

    @property
    def log(self) -> _Synced:
        return self

    @property
    def files(self) -> _Synced:
        return self

    def datasync(self) -> None:
        """All that there is was durable before."""


def _fail() -> NoReturn:
    raise RuntimeError("a response that cannot be encoded")


@pytest.mark.parametrize("acks", [1, ACKS_ALL])
async def test_one_who_cannot_be_told_keeps_nobody_from_being_told(acks: int) -> None:
    metrics, told, partition = Metrics(), asyncio.Queue[str](), cast(Partition, _Synced())
    with ThreadPoolExecutor(1) as pool:
        appends = WriteCycle(
            GroupCommit(asyncio.get_running_loop(), metrics, pool),
            Arrivals(),
            metrics,
            sync_on_ack=True,
            lease_valid=lambda: True,
        )
        for settle in (lambda: told.put_nowait("before"), _fail, lambda: told.put_nowait("after")):
            appends.add(Unacknowledged([Appended(0, partition)], acks, settle))
        appends.finish()
        async with asyncio.timeout(60):
            assert [await told.get(), await told.get()] == ["before", "after"]
