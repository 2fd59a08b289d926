"""A limit for tests that ends them also inside C code, where Python cannot run: pytest ends with them.

pytest-timeout fails a test by a signal, which Python handles when the C code returns. Where that never
happens, a watchdog of `faulthandler`, which needs no interpreter, prints the stacks of all threads some time
later, and ends the process. A worker of pytest-xdist that ends so fails its test, and another one takes over.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

GRACE_SECONDS = 60.0
"""For pytest-timeout to fail the test, and for its fixtures to be torn down."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _begin(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    _begin(item)  # anew: pytest cancels it when a test has failed


def limit_seconds(item: pytest.Item) -> float:
    """The limit that pytest-timeout has for this test; 0 when it has none."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and marker.args:
        return float(marker.args[0])
    return float(item.config.getini("timeout") or 0)


def _begin(item: pytest.Item) -> None:
    limit = limit_seconds(item)
    if limit > 0:
        stderr = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(limit + GRACE_SECONDS, exit=True, file=stderr)
