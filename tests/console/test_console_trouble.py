"""Brokers that go away and come back, and streams of events that lose their reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from forebay.client import Admin, Producer
from forebay.console.settings import ClusterSettings
from forebay.local.ports import ReservedPort
from forebay.testing import Broker
from support.console.browser import needs_browser, opened_page, picture
from support.console.event_stream import Events
from support.console.running_console import RunningConsole, running_console
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True) as started:
        with Admin(started.bootstrap_servers) as admin:
            admin.create_topic("flow", partitions=2)
        yield started


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    with running_console(broker.bootstrap_servers) as started:
        yield started


def _send(broker: Broker, *values: str) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send("flow", value)


def _values(data: Any) -> list[str]:
    return [row["value"]["text"] for row in data["rows"]]


def test_a_tail_shows_what_comes_and_goes_on_where_a_lost_connection_ended(
    console: RunningConsole, broker: Broker
) -> None:
    query = "sources=looks,tail&tail_topic=flow"
    events = Events(console, query)
    assert events.next("look")["problem"] is None
    events.next("tailing")
    _send(broker, "one")
    assert _values(events.next("messages")) == ["one"]
    last_id = events.last_id
    events.close()

    _send(broker, "missed")
    again = Events(console, query, last_id)
    assert _values(again.next("messages")) == ["missed"]
    again.close()

    filtered = Events(console, f"{query}&text=wanted")
    filtered.next("tailing")
    _send(broker, "other", "wanted")
    assert _values(filtered.next("messages")) == ["wanted"]
    filtered.close()


def test_what_comes_faster_than_it_can_be_read_is_counted(console: RunningConsole, broker: Broker) -> None:
    events = Events(console, "sources=tail&tail_topic=flow")
    events.next("tailing")
    _send(broker, *(f"fast {number}" for number in range(5000)))
    shown = skipped = 0
    while shown + skipped < 5000:
        data = events.next("messages")
        assert len(data["rows"]) <= 100
        shown, skipped = shown + len(data["rows"]), skipped + data["skipped"]
    assert shown + skipped == 5000
    events.close()


def test_unknown_sources_and_topics_are_refused(console: RunningConsole) -> None:
    assert console.ask("GET", "/api/local/events?sources=nothing").status == 404
    events = Events(console, "sources=tail&tail_topic=nowhere")
    assert "nowhere" in events.next("trouble")["error"]
    events.close()


def test_a_cluster_that_is_down_does_not_hide_another(console: RunningConsole, broker: Broker) -> None:
    with closing(ReservedPort()) as port:
        clusters = (
            ClusterSettings(name="up", bootstrap=broker.bootstrap_servers),
            ClusterSettings(name="down", bootstrap=f"127.0.0.1:{port.number}"),
        )
        with running_console("", clusters=clusters) as both:
            assert [each["name"] for each in both.get("session")["clusters"]] == ["up", "down"]
            assert [row["name"] for row in both.get("up/topics")["rows"]] == ["flow"]
            answer = both.ask("GET", "/api/down/topics")
            assert answer.status == 502
            assert "no broker answers" in answer.json["error"]


@needs_browser
def test_a_broker_that_goes_away_is_reported_and_its_return_is_seen(
    browser: Browser, console: RunningConsole, broker: Broker
) -> None:
    with opened_page(browser, f"{console.origin}/local/topics") as page:
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("this is not the token").wait_for()
        page.goto(console.at("topics"))
        page.get_by_role("link", name="flow").wait_for()

        broker.kill()
        page.get_by_text("The cluster does not answer").wait_for()
        picture(page, "broker-down")
        answer = console.ask("GET", "/api/local/topics")
        assert answer.status == 502
        assert "no broker answers" in answer.json["error"]
        refused = console.post("local/topics/flow/produce", {"value": "x", "confirmed": True})
        assert refused.status == 502

        broker.restart()
        page.get_by_text("The cluster does not answer").wait_for(state="detached")
        page.get_by_role("link", name="flow").wait_for()
        patience = Patience("messages can be sent again")
        while console.post("local/topics/flow/produce", {"value": "x", "confirmed": True}).status != 200:
            patience.check()
