"""One broker and one console for a module of tests, and one browser for all modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from forebay.testing import Broker
from support.console.running_console import RunningConsole, running_console

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from support.console.browser import SharedBrowser


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    with running_console(broker.bootstrap_servers) as started:
        yield started


@pytest.fixture(scope="session")
def shared_browser() -> Iterator[SharedBrowser]:
    from support.console.browser import SharedBrowser

    shared = SharedBrowser()
    yield shared
    shared.close()


@pytest.fixture(scope="module")
def browser(shared_browser: SharedBrowser) -> Iterator[Browser]:
    with shared_browser.used() as started:
        yield started
