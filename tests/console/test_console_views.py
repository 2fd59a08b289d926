"""Views in the console: created with a preview of what matches, listed, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.client import Producer, Record
from forebay.testing import Broker
from support.console.browser import needs_browser, opened_page, picture
from support.console.running_console import RunningConsole
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module", autouse=True)
def ten_orders(broker: Broker, console: RunningConsole) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            region = "eu" if number < 4 else "us"
            value = f'{{"id": {number}, "region": "{region}", "amount": {number * 10}}}'
            producer.send_record(Record(topic="orders", partition=0, value=value.encode()))
    patience = Patience("the console sees the messages")
    while console.ask("GET", "/api/local/topics/orders").status != 200 or (
        console.get("local/topics/orders")["messages"] != 10
    ):
        patience.check()


def test_a_preview_shows_what_a_view_would_show(console: RunningConsole) -> None:
    found = console.get("local/view-preview?source=orders&where=value.region%3D'eu'&select=value.id")
    assert (found["examined"], found["matched"]) == (10, 4)
    assert sorted(row["value"] for row in found["rows"]) == [f'{{"id":{number}}}' for number in range(4)]
    wrong = console.ask("GET", "/api/local/view-preview?source=orders&where=value.region%3D")
    assert (wrong.status, wrong.json["field"]) == (422, "where")
    wrong = console.ask("GET", "/api/local/view-preview?source=orders&select=value.id%20%2B")
    assert (wrong.status, wrong.json["field"]) == (422, "select")


@needs_browser
def test_a_person_creates_a_view_after_a_preview_and_deletes_it(
    browser: Browser, console: RunningConsole
) -> None:
    with opened_page(browser, console.url) as page:
        page.get_by_role("link", name="Views", exact=True).click()
        page.get_by_text("No views yet.").wait_for()
        page.get_by_role("button", name="Create view").click()
        page.get_by_label("Name").fill("orders.eu")
        page.get_by_label("Of topic").fill("orders")
        page.get_by_label("Where").fill("value.region = 'eu'")
        page.get_by_text("4 of the newest 10 messages match.").wait_for()
        picture(page, "view-create")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Do it").click()
        page.get_by_role("heading", name="orders.eu").wait_for()
        page.get_by_text("value.region = 'eu'", exact=True).wait_for()
        picture(page, "view")
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("textbox").fill("orders.eu")
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        page.get_by_text("deleted view orders.eu").wait_for()
    assert console.get("local/views")["rows"] == []
