"""Delayed messages in the console: what waits until when, firing and cancelling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.client import Admin, Producer, Record
from forebay.testing import Broker
from support.console.browser import needs_browser, opened_page, picture
from support.console.running_console import RunningConsole, running_console
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module", autouse=True)
def four_reminders(broker: Broker, console: RunningConsole) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("reminders", partitions=1, config={"forebay.delay.enable": "true"})
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(4):
            producer.send_record(
                Record(
                    topic="reminders",
                    partition=0,
                    key=b"customer-%d" % number,
                    value=b'{"call": %d}' % number,
                    deliver_after=3600 * (number + 1),
                )
            )
    patience = Patience("all of them wait")
    while not (rows := console.get("local/delays")["rows"]) or rows[0]["waiting"] != 4:
        patience.check()


def test_waiting_messages_are_listed_in_the_order_in_which_they_are_due(console: RunningConsole) -> None:
    (topic,) = console.get("local/delays")["rows"]
    found = console.get("local/delays/reminders")
    assert [row["key"] for row in found["rows"]] == [f"customer-{number}" for number in range(4)]
    assert topic["due_ms"] == found["rows"][0]["due_ms"]
    assert {each["name"]: each["count"] for each in found["due"]}["within a day"] >= 3
    one = console.get(f"local/delays/reminders/message?id={found['rows'][2]['id']}")
    assert (one["key"], one["value"]) == ("customer-2", '{"call": 2}')
    assert console.ask("GET", "/api/local/delays/reminders/message?id=0-99999").status == 404
    wrong = console.post("local/delays/reminders/fire", {"ids": ["soon"]})
    assert (wrong.status, wrong.json["field"]) == (422, "ids")


def test_masked_fields_of_waiting_messages_are_hidden(broker: Broker, console: RunningConsole) -> None:
    first = console.get("local/delays/reminders")["rows"][0]["id"]
    with running_console(broker.bootstrap_servers, masks=("call",)) as masked:
        patience = Patience("the console sees the topic")
        while masked.ask("GET", "/api/local/delays/reminders").status != 200:
            patience.check()
        one = masked.get(f"local/delays/reminders/message?id={first}")
        assert (one["key"], one["value"]) == ("customer-0", '{"call":"•••"}')


@needs_browser
def test_a_person_fires_one_message_and_cancels_the_rest(browser: Browser, console: RunningConsole) -> None:
    first = console.get("local/delays/reminders")["rows"][0]["id"]
    with opened_page(browser, console.url) as page:
        page.get_by_role("link", name="Delayed", exact=True).click()
        page.get_by_role("link", name="reminders").click()
        page.get_by_role("button", name=first, exact=True).click()
        page.get_by_text('"call": 0').wait_for()
        picture(page, "delay")
        page.get_by_role("button", name="Fire now").click()
        page.get_by_text(f"forebay delay fire reminders {first}").wait_for()
        page.get_by_role("button", name="Do it").click()
        page.get_by_text("fired 1 message of reminders").wait_for()
        page.get_by_role("button", name=first, exact=True).wait_for(state="detached")
        page.get_by_label("Choose").first.check()
        page.get_by_role("button", name="Cancel 1", exact=True).click()
        page.get_by_role("button", name="Cancel them").click()
        page.get_by_text("cancelled 1 message of reminders").wait_for()
        page.get_by_role("button", name="Cancel all").click()
        page.get_by_role("dialog").get_by_role("textbox").fill("reminders")
        page.get_by_role("dialog").get_by_role("button", name="Cancel them").click()
        page.get_by_text("Nothing waits in this topic.").wait_for()
    patience = Patience("the message is delivered")
    while console.get("local/topics/reminders")["messages"] < 1:
        patience.check()
