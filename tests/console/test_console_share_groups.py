"""Share groups in the console: deliveries under way, locks with their holders, resets with a preview."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.client import Producer, Queue, Record
from forebay.testing import Broker
from support.console.browser import needs_browser, opened_page, picture
from support.console.running_console import RunningConsole
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module", autouse=True)
def a_queue(broker: Broker, console: RunningConsole) -> None:
    """Ten jobs: the first two are done, the rest waits."""
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send_record(Record(topic="jobs", partition=0, value=b"%d" % number))
    with Queue(broker.bootstrap_servers, "jobs", group="thumbnails") as queue:
        for _ in range(2):
            with queue.receive(timeout_s=20):
                pass
    patience = Patience("the console sees the share group")
    while console.get("local/share-groups")["total"] < 1:
        patience.check()


def test_a_held_message_shows_its_holder_its_lock_and_its_deliveries(
    broker: Broker, console: RunningConsole
) -> None:
    settings = {"client.id": "resizer-1"}
    with (
        Queue(broker.bootstrap_servers, "jobs", group="thumbnails", settings=settings) as queue,
        queue.receive(timeout_s=20) as message,
    ):
        more = console.get("local/more-of-share-groups?names=thumbnails")["thumbnails"]
        assert (more["members"], more["held"]) == (1, 1)
        group = console.get("local/share-groups/thumbnails")
        (member,) = group["members"]
        assert member["client"] == "resizer-1"
        (row,) = group["partitions"]
        (lock,) = [each for each in row["window"]["records"] if each["state"] == "held"]
        assert (lock["first_offset"], lock["last_offset"]) == (message.offset, message.offset)
        assert (lock["deliveries"], lock["member"]) == (1, member["member"])
        assert 0 < lock["left_ms"] <= 30_000
        refused = console.post(
            "local/share-groups/thumbnails/reset", {"to": "to_earliest", "confirmed": True}
        )
        assert refused.status == 502
        assert "has members" in refused.json["error"]


@needs_browser
def test_a_person_sends_a_share_group_back_and_deletes_it(browser: Browser, console: RunningConsole) -> None:
    with opened_page(browser, console.url) as page:
        page.get_by_role("link", name="Share groups", exact=True).click()
        page.get_by_role("link", name="thumbnails").click()
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_text("1 partition of 1 would change, and 10 messages be left to read").wait_for()
        picture(page, "share-reset")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("forebay share reset-offsets thumbnails --to-earliest --execute").wait_for()
        page.get_by_role("button", name="Do it").click()
        page.get_by_text("reset 1 partition of share group thumbnails").wait_for()
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("textbox").fill("thumbnails")
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        page.get_by_text("deleted share group thumbnails").wait_for()
        page.get_by_text("No share groups yet.").wait_for()
    assert console.ask("GET", "/api/local/share-groups/thumbnails").status == 404
