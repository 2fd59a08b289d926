"""What the tests themselves stand on: processes that are forked, and waits that come to an end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from typing import IO

import pytest

from support.brokers.nursery import NURSERY, ForkedProcess
from support.waiting import Patience, ended

SECONDS = 120.0


@pytest.fixture
def told() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


@contextlib.contextmanager
def forked(told: IO[bytes], *arguments: str) -> Iterator[ForkedProcess]:
    process = NURSERY.start(arguments, stderr=told.fileno())
    with process.stdout:
        yield process
        process.kill()
        process.wait(SECONDS)


def words(told: IO[bytes]) -> str:
    told.seek(0)
    return told.read().decode()


def test_a_forked_process_has_the_output_the_errors_and_the_exit_code_of_a_command(told: IO[bytes]) -> None:
    with forked(told, "--version") as process:
        assert process.stdout.read().startswith(b"forebay ")
        assert process.wait(SECONDS) == 0
    with forked(told, "serve", "--set", "no.such.setting=1") as process:
        assert process.stdout.read() == b""
        assert process.wait(SECONDS) == process.poll() == 2
    assert "no.such.setting" in words(told)


def test_a_forked_process_has_the_environment_and_the_directory_of_the_test(
    told: IO[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("FOREBAY_NUM_PARTITIONS", "many")
    with forked(told, "serve") as process:
        assert process.wait(SECONDS) == 2
    assert "num.partitions" in words(told)
    monkeypatch.delenv("FOREBAY_NUM_PARTITIONS")
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    with forked(told, "serve", "--listen", "127.0.0.1:0") as process:
        assert b"data ./forebay-data" in process.stdout.readline()
        assert os.path.exists("forebay-data")  # noqa: PTH110 - it is relative
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


def test_a_forked_process_ends_by_signals_and_a_wait_for_it_ends_too(told: IO[bytes]) -> None:
    with forked(told, "serve", "--listen", "127.0.0.1:0", "--data", "/dev/null/nowhere") as process:
        assert process.wait(SECONDS) == 1
    with (
        tempfile.TemporaryDirectory() as data,
        forked(told, "serve", "--listen", "127.0.0.1:0", "--data", data) as process,
    ):
        assert process.stdout.readline()
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(SECONDS) == -signal.SIGKILL


async def test_a_test_that_waits_for_ever_fails_with_what_its_tasks_wait_for() -> None:
    never = asyncio.Event()

    async def waits_here() -> None:
        await never.wait()

    async def hangs() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(waits_here())

    with pytest.raises(AssertionError, match="waits_here"):
        await ended(hangs, 0.01)()


async def test_what_a_test_cancels_itself_stays_cancelled() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await ended(cancelled)()


def test_patience_ends_with_what_was_seen() -> None:
    patience = Patience("all is read", 0.0)
    with pytest.raises(AssertionError, match=r"not within 0 s: all is read; seen: 3 of 4"):
        patience.check("3 of 4")
    Patience("all is read").check("3 of 4")
