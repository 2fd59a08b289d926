"""Every page in a real browser: axe finds nothing serious, in light and dark, and a phone is wide enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from forebay.testing import Broker
from support.brokers.forebay_command import forebay
from support.console.accessibility import accessibility_problems
from support.console.browser import needs_browser, opened_page, picture, show
from support.console.running_console import RunningConsole, running_console
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = needs_browser

PAGES = {
    "overview": "Busiest topics",
    "topics": "orders",
    "topics/orders": "Readers",
    "topics/orders?tab=readers": "billing",
    "topics/orders?tab=producers": "Last wrote",
    "topics/orders?tab=settings": "retention.ms",
    "messages": "orders",
    "messages/orders": "amount",
    "groups": "billing",
    "groups/billing": "Lag by partition",
    "groups/billing?tab=partitions": "Committed",
    "groups/billing?tab=members": "Nobody reads",
    "share-groups": "Share groups",
    "dead-letters": "Dead letters",
    "delays": "Delayed",
    "views": "large",
    "views/large": "amount",
    "pipelines": "Pipelines",
    "transactions": "import-1",
    "brokers": "over brokers",
    "brokers/1": "Disk by topic",
    "brokers/1?tab=requests": "99 of 100 below",
    "timeline": "created topic",
    "security": "admin",
    "security?tab=rules": "ada",
    "security?tab=quotas": "uotas",
}
"""Each page with a text by which it is known to be there."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True) as started:
        yield started


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    properties = {str(key): str(value) for key, value in broker.client_settings.items()}
    fill(broker)
    with running_console(broker.bootstrap_servers, properties=properties) as started:
        patience = Patience("the console has seen rates")
        while started.get("local/overview")["rate"] is None:
            patience.check()
        yield started


def fill(broker: Broker) -> None:
    """Something for every page."""
    settings: dict[str, str | int | float | bool] = {**broker.client_settings}
    settings["bootstrap.servers"] = broker.bootstrap_servers
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic("orders", 6, 1), NewTopic("later", 1, 1)]).values():
        future.result(60)
    options = ["-b", broker.bootstrap_servers]
    options += [part for name, value in broker.client_settings.items() for part in ("-X", f"{name}={value}")]
    assert (
        forebay("view", "create", "large", "--from", "orders", "--where", "value.amount > 3", *options).code
        == 0
    )
    assert forebay("acl", "add", "User:ada", "read", "topic", "orders", *options).code == 0
    plain = Producer({**settings, "enable.idempotence": True})
    importing = Producer({**settings, "transactional.id": "import-1"})
    for number in range(40):
        plain.produce("orders", f'{{"id": {number}, "amount": {number % 9}}}', key=str(number))
    plain.flush(60)
    importing.init_transactions(60)
    importing.begin_transaction()
    importing.produce("later", b"half of it")
    importing.flush(60)
    consumer = Consumer({**settings, "group.id": "billing", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", at, 1) for at in range(6)], asynchronous=False)
    consumer.close()


def visited(page: Page) -> Iterator[str]:
    """Every view, one after the other, without loading the page anew."""
    for address, text in PAGES.items():
        show(page, "nowhere")  # so that nothing of the view before is taken for the next
        page.get_by_text("There is no such page.").wait_for()
        show(page, address)
        page.get_by_text(text).first.wait_for(state="attached")
        page.locator("[role=status][aria-label=Loading]").first.wait_for(state="detached")
        yield address


def test_axe_finds_nothing_serious_on_any_page(browser: Browser, console: RunningConsole) -> None:
    with opened_page(browser, console.url) as page:
        page.get_by_role("heading", name="Overview").wait_for()
        found = {
            address: accessibility_problems(page, menu=number == 0)
            for number, address in enumerate(visited(page))
        }
        assert {address: problems for address, problems in found.items() if problems} == {}


def test_axe_finds_nothing_serious_in_the_dark_on_a_phone_and_no_page_is_wider_than_it(
    browser: Browser, console: RunningConsole
) -> None:
    with opened_page(browser, console.url, width=390, height=844) as page:
        page.emulate_media(color_scheme="dark")
        page.get_by_role("heading", name="Overview").wait_for()
        found = {}
        for number, address in enumerate(visited(page)):
            # What pages are made of is the same.
            problems = [] if number % 3 else accessibility_problems(page, menu=number == 0)
            width = page.evaluate("document.documentElement.scrollWidth")
            found[address] = problems + ([f"it is {width} wide"] if width > 390 else [])
            picture(page, f"phone-{address.replace('/', '-').replace('?', '-')}")
        assert {address: problems for address, problems in found.items() if problems} == {}


def test_dialogs_are_as_usable_as_pages(browser: Browser, console: RunningConsole) -> None:
    with opened_page(browser, console.at("topics")) as page:
        page.get_by_role("button", name="Create topic").click()
        page.get_by_label("Name").fill("new")
        assert accessibility_problems(page) == []
        show(page, "groups/billing")
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_role("dialog").wait_for()
        assert accessibility_problems(page) == []
        show(page, "topics/orders")
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("textbox").wait_for()
        assert accessibility_problems(page) == []
        page.evaluate("document.querySelector('dialog form').append(document.createElement('select'))")
        assert any("select" in each for each in accessibility_problems(page)), "it does look"
