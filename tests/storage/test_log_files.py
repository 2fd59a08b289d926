"""What waits for a disk is kept apart from what does not, and is found where it does not belong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk
from support.brokers.loop_guard import loops_guarded
from support.machines.storing import fill


@pytest.fixture
def log(tmp_path: Path) -> Log:
    made = open_log(RealDisk(), str(tmp_path / "t-0"))
    fill(made, 3)
    return made


async def sync_on_the_loop(log: Log) -> None:
    asyncio.get_running_loop().call_soon(log.files.datasync)
    await asyncio.sleep(0)


async def sync_in_a_thread(log: Log) -> None:
    await asyncio.to_thread(log.files.datasync)


def test_a_sync_on_a_loop_is_found(log: Log) -> None:
    with pytest.raises(AssertionError, match=r"LogFiles\.datasync, called by asyncio"), loops_guarded():
        asyncio.run(sync_on_the_loop(log))
    assert log.recovery_point == 3


def test_a_sync_in_a_thread_is_right(log: Log) -> None:
    with loops_guarded():
        asyncio.run(sync_in_a_thread(log))
    assert log.recovery_point == 3
