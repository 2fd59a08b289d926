"""Tiered topics in the console: what is on disk and what in the object store, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.testing import Broker
from support.brokers.tiered import create_tiered, fill, settings
from support.clients.wire_client import WireClient
from support.console.accessibility import accessibility_problems
from support.console.browser import needs_browser, opened_page, picture
from support.console.running_console import RunningConsole
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiers") / "store"


@pytest.fixture(scope="module")
def broker(store: Path) -> Iterator[Broker]:
    with Broker(settings=settings(store)) as started:
        with WireClient(started.bootstrap_servers) as client:
            create_tiered(client, "history")
            fill(client, "history", 100)
            create_tiered(client, "slow", segment_bytes="400", remote_log_copy_disable="true")
            fill(client, "slow", 40)
        yield started


def remote_of(console: RunningConsole, topic: str) -> dict[str, object]:
    found: dict[str, object] = console.get(f"local/topics/{topic}")["rows"][0]["remote"] or {}
    return found


def wait_until_copied(console: RunningConsole) -> None:
    patience = Patience("what is closed of history is in the object store, and most of it has left the disk")
    while (seen := remote_of(console, "history")).get("waiting_segments", 1) or not _has_left(seen):
        patience.check(seen)


def _has_left(remote: dict[str, object]) -> bool:
    return int(str(remote["local_start"])) > int(str(remote["end"])) / 2


def test_a_tiered_topic_says_what_lies_where(console: RunningConsole) -> None:
    wait_until_copied(console)
    found = console.get("local/topics/history")
    (row,) = found["rows"]
    remote = row["remote"]
    assert (row["start"], row["end"], remote["start"]) == (0, 100, 0)
    assert remote["start"] < remote["local_start"] <= remote["end"] <= row["end"]
    assert remote["size"] == found["remote"] > row["size"] > 0, "most of it has left the disk"
    assert (remote["known"], remote["copies"], remote["behind"], remote["problem"]) == (True, True, False, "")
    listed = {each["name"]: each["remote"] for each in console.get("local/topics?sort=-remote")["rows"]}
    assert next(iter(listed)) == "history" and listed["history"] == found["remote"]
    overview = console.get("local/overview")
    assert overview["remote"] == found["remote"] and overview["problems"] == []


def test_segments_that_nobody_wants_copied_are_no_problem(console: RunningConsole) -> None:
    patience = Patience("the console knows of the waiting segments")
    while not remote_of(console, "slow").get("waiting_segments"):
        patience.check()
    remote = remote_of(console, "slow")
    assert int(str(remote["waiting_segments"])) > 8
    assert (remote["copies"], remote["behind"], remote["size"]) == (False, False, 0)
    assert console.get("local/overview")["problems"] == []


@needs_browser
def test_a_person_sees_where_messages_are_and_that_the_store_fails(
    browser: Browser, console: RunningConsole, broker: Broker, store: Path
) -> None:
    wait_until_copied(console)
    with opened_page(browser, console.at("topics/history")) as page:
        page.get_by_text("all closed segments").wait_for()
        page.get_by_role("link", name="Disk and object store").click()
        page.get_by_role("img", name="in the object store").wait_for()
        picture(page, "tiers")
        assert accessibility_problems(page) == []

        away = store.rename(store.with_name("away"))
        store.mkdir()  # as if another volume was mounted there
        with WireClient(broker.bootstrap_servers) as client:
            fill(client, "history", 40, start=100)
        page.get_by_role("alert").first.wait_for()
        page.get_by_role("link", name="Overview", exact=True).click()
        page.get_by_text("The object store fails for 1 partition").wait_for()
        picture(page, "tiers-failing")
        assert console.get("local/topics/history")["messages"] == 140, "those in the store still count"
        page.get_by_role("link", name="Show").click()
        page.wait_for_url("**/topics/history?tab=tiers")
        store.rename(store.with_name("wrong"))
        away.rename(store)
        page.get_by_role("alert").first.wait_for(state="detached")
