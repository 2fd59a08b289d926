"""Clients that are closed, whatever happens: in time, and with which words in the log."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from forebay.client import ClientError, Queue

WAIT = 60.0
"""For what must come: long, because the machine may be busy."""
SOON = 2.0
"""A bound for a close that would take longer, or for ever."""
HANGS = 120.0
"""Only what hangs takes as long."""
GIVEN_UP = "is left alone"
"""What the log says of a librdkafka that did not close in time."""


def in_time(work: Callable[[], Any]) -> None:
    """Fails when this hangs; raises what it raises."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANGS)
    assert not thread.is_alive(), "it hangs"
    if failures:
        raise failures[0]


def given_up(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if GIVEN_UP in record.getMessage()]


def wait_in(receive: Callable[[], object]) -> threading.Thread:
    """A thread that waits for messages until the client is closed."""

    def run() -> None:
        with contextlib.suppress(ClientError):
            receive()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def receive_one(queue: Queue) -> None:
    with queue.receive():
        pass
