"""Messages in a real browser: read, found, followed, sent; and what hostile ones cannot do."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from forebay.client import Admin
from forebay.testing import Broker
from support.console.browser import needs_browser, opened_page, picture, show
from support.console.running_console import RunningConsole
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs_browser

SCRIPT = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture(scope="module", autouse=True)
def filled(broker: Broker, console: RunningConsole) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=2)
        admin.create_topic("hostile", partitions=1, config={"max.message.bytes": "20000000"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 20_000_000})
    for number in range(200):
        value = json.dumps({"id": number, "amount": number % 100, "note": "fürs Büro"}, ensure_ascii=False)
        producer.produce("orders", key=f"customer-{number % 9}", value=value, headers=[("trace", b"abc")])
    for odd in (SCRIPT.encode(), b"x" * 10_000_000, b"\x00\xff\xfe<b>", b'{"a": ' * 100):
        producer.produce("hostile", key=SCRIPT, value=odd, headers=[("<b>name</b>", b"<script>")])
        producer.flush()
    assert producer.flush(60) == 0
    patience = Patience("the console sees all of it")
    while console.get("local/topics/hostile")["messages"] < 4:
        patience.check()


def test_a_person_finds_opens_changes_and_sends_a_message(browser: Browser, console: RunningConsole) -> None:
    with opened_page(browser, console.at("messages/orders")) as page:
        page.get_by_role("button", name="Show more").wait_for()
        picture(page, "messages")
        page.get_by_role("button", name="More", exact=True).click()
        page.get_by_label("Condition in SQL").fill("value.amount >")
        page.get_by_role("button", name="Search").click()
        page.get_by_text("something is missing here").wait_for()
        page.get_by_label("Condition in SQL").fill("value.id = 123")
        page.get_by_role("button", name="Search").click()
        page.get_by_text("That is all.").wait_for()
        page.get_by_role("button", name=re.compile("^Message [0-9]")).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("fürs Büro").wait_for()
        assert "at=" in page.url
        picture(page, "message")
        dialog.get_by_role("button", name="Edit and send").click()
        page.get_by_role("dialog").get_by_label("Key", exact=True).fill("changed")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Do it").click()
        page.get_by_text("sent orders-").wait_for()
        show(page, "messages/orders?key=changed")
        page.get_by_text("changed", exact=True).first.wait_for()


def test_a_live_view_shows_new_messages_and_can_be_paused(
    browser: Browser, console: RunningConsole, broker: Broker
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    with opened_page(browser, console.at("messages/orders?live=1")) as page:
        page.get_by_text("Waiting for the next message").wait_for()
        patience = Patience("a message is seen")
        while not page.get_by_text("live one").first.is_visible():  # it begins when the stream is open
            patience.check()
            producer.produce("orders", value="live one")
            producer.flush()
            page.wait_for_timeout(200)
        picture(page, "live")
        page.get_by_role("button", name="Pause").click()
        producer.produce("orders", value="while paused")
        producer.flush()
        page.get_by_text("newer message").wait_for()
        assert page.get_by_text("while paused").count() == 0
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("while paused").wait_for()


def test_hostile_messages_stay_text(browser: Browser, console: RunningConsole) -> None:
    with opened_page(browser, console.at("messages/hostile")) as page:
        page.get_by_text("That is all.").wait_for()
        assert page.locator("table.messages tbody tr").count() == 4
        for offset in range(4):
            show(page, f"messages/hostile?at=0-{offset}")
            page.get_by_role("dialog").get_by_text("Send again").wait_for()
            show(page, "messages/hostile")
            page.get_by_role("dialog").wait_for(state="detached")
        picture(page, "hostile")
        assert page.locator("img[src=x]").count() == 0
        assert page.title() == "Messages · Forebay"
        with page.expect_download() as download:
            show(page, "messages/hostile?at=0-1")
            page.get_by_text("Download all of it").click()
        assert download.value.path().stat().st_size == 10_000_000
