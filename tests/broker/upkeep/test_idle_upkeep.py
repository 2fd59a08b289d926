"""Upkeep looks at partitions that need it, and not at all the others: counted, not timed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.partition.partition import Partition
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import WireClient, append, batch, create
from support.faults.faulty_disk import FaultyDisk

MANY = 50
QUIET = {"log.flush.interval.ms": "3600000", "log.segment.delete.delay.ms": "0"}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", QUIET, make_disk=FaultyDisk) as running:
        yield running


def run(local: LocalBroker, duty: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run_coroutine_threadsafe(duty(), local.node.loop).result(60)


def looks(local: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which duties go through the partitions from now on."""
    upkeep, seen = local.node.upkeep, []
    through_all = upkeep._for_each

    async def noted(duty: str, act: Callable[[Partition], object]) -> None:
        seen.append(duty)
        await through_all(duty, act)

    monkeypatch.setattr(upkeep, "_for_each", noted)
    return seen


def test_nothing_is_looked_at_while_nothing_happens(
    local: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = local.node.upkeep
    with WireClient(local.bootstrap) as client:
        create(client, "idle", partitions=MANY)
    run(local, upkeep.checkpoint)
    seen = looks(local, monkeypatch)
    written: list[object] = []
    monkeypatch.setattr(local.node.data.checkpoints, "write", lambda *given: written.append(given))
    for duty in (upkeep.reap, upkeep.bring_back, upkeep.remove_folded, upkeep.checkpoint):
        run(local, duty)
    assert (seen, written) == ([], [])


def test_a_log_that_could_not_be_written_is_looked_at_until_it_can(
    local: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = local.node.disk
    assert isinstance(disk, FaultyDisk)
    with WireClient(local.bootstrap) as client:
        create(client, "full")
        disk.break_path("append", "full-0")
        assert append(client, "full", batch()).error_code
        seen = looks(local, monkeypatch)
        disk.repair()
        offline: Callable[[], bool] = lambda: local.on_loop(  # noqa: E731
            lambda broker: broker.partitions.get("full", 0).log.offline is not None
        )
        while offline():
            run(local, local.node.upkeep.bring_back)
        assert seen
        del seen[:]
        run(local, local.node.upkeep.bring_back)
        assert not seen


def test_files_of_deleted_segments_are_removed(local: LocalBroker, tmp_path: Path) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "short")
        append(client, "short", batch())
        append(client, "short", batch())

        def delete(broker: Any) -> None:
            log = broker.partitions.get("short", 0).log
            log.roll()
            log.delete_front(1)

        local.on_loop(delete)
        run(local, local.node.upkeep.reap)
    assert not list((tmp_path / "data" / "short-0").glob("*.deleted"))
    assert not local.node.data.tended_logs.deleted
