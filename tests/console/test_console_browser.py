"""The pages in a real browser: what a person sees, and does."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from playwright.sync_api import Error

from forebay.client import Admin, Producer
from forebay.testing import Broker
from support.console.browser import needs_browser, opened_page, picture, show
from support.console.running_console import RunningConsole
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

pytestmark = needs_browser


def test_a_person_creates_finds_stars_and_deletes_a_topic(
    browser: Browser, console: RunningConsole, broker: Broker
) -> None:
    with opened_page(browser, console.url) as page:
        page.get_by_role("heading", name="Overview").wait_for()
        assert "token" not in page.url
        page.get_by_text("All is well.").wait_for()
        page.get_by_text("forebay topic create orders").wait_for()
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("other", partitions=1)
        page.get_by_text("First steps").wait_for(state="detached")
        picture(page, "overview")

        page.get_by_role("link", name="Topics", exact=True).click()
        page.get_by_role("button", name="Create topic").click()
        page.get_by_label("Name").fill("orders")
        page.get_by_label("Partitions").fill("many")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("is no whole number").wait_for()
        page.get_by_label("Partitions").fill("3")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("forebay topic create orders --partitions 3").wait_for()
        page.get_by_role("button", name="Do it").click()
        page.wait_for_url("**/local/topics/orders")
        page.get_by_role("heading", name="orders", exact=True).wait_for()
        picture(page, "topic")

        page.get_by_role("link", name="Topics", exact=True).first.click()
        page.get_by_label("Favourite orders").click()
        page.get_by_text("Favourites").click()
        page.get_by_text("1 topic", exact=True).wait_for()
        page.get_by_text("Favourites").click()
        page.keyboard.press("/")
        page.keyboard.type("oth")
        page.get_by_role("link", name="orders").wait_for(state="detached")
        assert "search=oth" in page.url
        picture(page, "topics")

        show(page, "topics/orders")
        page.get_by_role("button", name="Delete").click()
        delete = page.get_by_role("dialog").get_by_role("button", name="Delete")
        assert delete.is_disabled()
        page.get_by_role("dialog").get_by_role("textbox").fill("orders")
        delete.click()
        page.get_by_text("deleted topic orders").wait_for()


def test_settings_are_changed_and_a_refusal_is_shown(
    browser: Browser, console: RunningConsole, broker: Broker
) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("kept", "something")
    with opened_page(browser, console.at("topics/kept?tab=settings")) as page:
        page.get_by_label("Change cleanup.policy", exact=True).wait_for()
        page.get_by_label("Search settings").fill("retention.ms")
        page.get_by_label("Change cleanup.policy", exact=True).wait_for(state="detached")
        page.get_by_label("Change retention.ms", exact=True).click()
        page.get_by_label("Value").fill("soon")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Do it").click()
        page.get_by_role("alert").get_by_text("retention.ms").wait_for()
        page.get_by_role("button", name="Cancel").last.click()
        page.get_by_label("Value").fill("3600000")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Do it").click()
        page.get_by_text("this topic", exact=True).wait_for()
        picture(page, "settings")


def test_a_phone_shows_a_menu_and_nothing_wider_than_itself(
    browser: Browser, console: RunningConsole
) -> None:
    with opened_page(browser, console.url, width=390, height=844) as page:
        page.get_by_text("All is well.").wait_for()
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name="Topics", exact=True).click()
        page.get_by_role("button", name="Create topic").wait_for()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390
        picture(page, "phone")


def test_an_answer_that_takes_longer_than_a_look_is_shown(browser: Browser, console: RunningConsole) -> None:
    def answer_late(route: Route) -> None:
        patience = Patience("the console has looked three times")
        seen = {console.get("local/overview")["time"]}
        while len(seen) < 4:
            seen.add(console.get("local/overview")["time"])
            patience.check()
        with suppress(Error):  # the page does not want it any more
            route.continue_()

    with opened_page(browser, console.url) as page:
        page.get_by_text("All is well.").wait_for()
        page.route("**/api/local/brokers", answer_late)
        page.get_by_role("link", name="Brokers", exact=True).click()
        page.get_by_text("Partitions and leaders over brokers").wait_for()
        page.unroute_all(behavior="ignoreErrors")
