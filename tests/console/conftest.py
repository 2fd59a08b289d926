"""One broker, one console and one browser for a module of tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from forebay.testing import Broker
from support.console.running_console import RunningConsole, running_console

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    with running_console(broker.bootstrap_servers) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from support.console.browser import running_browser

    with running_browser() as started:
        yield started
