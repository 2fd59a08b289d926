"""Dead letters in the console: reasons, one letter, and a redrive with a preview."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.client import Producer, Queue, Record
from forebay.testing import Broker
from support.console.browser import needs_browser, opened_page, picture
from support.console.running_console import RunningConsole, running_console
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module", autouse=True)
def three_letters(broker: Broker, console: RunningConsole) -> None:
    servers = broker.bootstrap_servers
    with Producer(servers) as producer:
        for number in range(3):
            value = b'{"picture": "<script>alert(1)</script>"}'
            producer.send_record(Record(topic="jobs", partition=0, key=b"job-%d" % number, value=value))
    with Queue(servers, "jobs", group="thumbnails", dead_letter_topic="jobs.dead") as queue:
        for _ in range(3):
            with queue.receive(timeout_s=20) as message:
                message.reject()
    patience = Patience("the letters are written")
    while not (found := console.get("local/dead-letters")["rows"]) or found[0]["letters"] != 3:
        patience.check()


def test_letters_are_listed_with_their_reason_and_origin(console: RunningConsole) -> None:
    (topic,) = console.get("local/dead-letters")["rows"]
    assert (topic["name"], topic["groups"]) == ("jobs.dead", ["thumbnails"])
    found = console.get("local/dead-letters/jobs.dead/letters")
    assert sorted(row["source"]["offset"] for row in found["rows"]) == [0, 1, 2]
    assert found["reasons"] == [{"name": found["rows"][0]["reason"], "count": 3}]
    assert console.get("local/dead-letters/jobs.dead/letters?group=other")["matching"] == 0
    wrong = console.ask("GET", "/api/local/dead-letters/jobs.dead/letters?since=soon")
    assert (wrong.status, wrong.json["field"]) == (422, "since")
    one = console.get(f"local/dead-letters/jobs.dead/letter?at={found['rows'][0]['at']}")
    assert one["copied"]
    assert one["key"].startswith("job-")
    assert console.ask("GET", "/api/local/dead-letters/jobs.dead/letter?at=0:99").status == 404


def test_a_redrive_shows_what_it_would_move_and_refuses_what_cannot_be(console: RunningConsole) -> None:
    preview = console.get("local/dead-letters/jobs.dead/redrive?limit=2")
    assert (preview["moved"], preview["rows"][0]["to"]) == (2, "jobs-0")
    asked = console.post("local/dead-letters/jobs.dead/redrive", {"group": "thumbnails", "limit": "2"}).json
    assert asked["question"] == "Move 2 dead letters of jobs.dead back?"
    assert asked["command"] == (
        "forebay dead-letter redrive jobs.dead --group thumbnails --limit 2 --execute"
    )
    itself = console.post("local/dead-letters/jobs.dead/redrive", {"to": "jobs.dead"})
    assert (itself.status, itself.json["field"]) == (422, "to")


def test_masked_fields_are_hidden_in_letters_and_no_view_shows_them(broker: Broker) -> None:
    with running_console(broker.bootstrap_servers, masks=("picture",)) as masked:
        patience = Patience("the console sees the letters")
        while not masked.get("local/dead-letters")["rows"]:
            patience.check()
        assert masked.get("local/dead-letters/jobs.dead/letter?at=0:0")["value"] == '{"picture":"•••"}'
        preview = masked.ask("GET", "/api/local/view-preview?source=jobs&select=value.picture+as+p")
        assert (preview.status, preview.json["field"]) == (422, "source")
        view = {"name": "shown", "source": "jobs", "select": "value.picture as p"}
        assert masked.post("local/views/create", view).status == 422


@needs_browser
def test_a_person_looks_at_a_letter_and_moves_it_back(browser: Browser, console: RunningConsole) -> None:
    with opened_page(browser, console.url) as page:
        page.get_by_role("link", name="Dead letters", exact=True).click()
        page.get_by_role("link", name="jobs.dead").click()
        page.get_by_role("button", name="0:0", exact=True).click()
        page.get_by_text("<script>alert(1)</script>").wait_for()
        picture(page, "dead-letter")
        page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
        page.get_by_text("1 letter would be moved").wait_for()
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("--at 0:0 --execute").wait_for()
        page.get_by_role("button", name="Do it").click()
        page.get_by_text("moved 1 dead letter of jobs.dead").wait_for()
        page.get_by_text("moved back").wait_for()
        picture(page, "dead-letters")
    patience = Patience("the message is in its topic again")
    while console.get("local/topics/jobs")["messages"] < 4:
        patience.check()
