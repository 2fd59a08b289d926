"""The console's timeline, times of requests, and where partitions lie: in the API and in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from forebay.client import Admin, Producer
from forebay.console.watch.activity import quantile
from forebay.console.watch.timeline import Timeline
from forebay.testing import Cluster
from forebay.wire.messages.describe_activity import BrokerEvent
from support.console.browser import needs_browser, opened_page, picture, show
from support.console.running_console import RunningConsole, running_console
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as started:
        with Admin(started.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=6, replication_factor=3)
        yield started


@pytest.fixture(scope="module")
def console(cluster: Cluster) -> Iterator[RunningConsole]:
    with running_console(cluster.bootstrap_servers) as started:
        yield started


def test_a_dead_broker_is_on_the_timeline_with_its_failover_and_the_elections(
    cluster: Cluster, console: RunningConsole
) -> None:
    (created,) = console.get("local/timeline?kinds=change&search=orders")["rows"]
    assert (created["api"], created["what"], created["failed"]) == ("CreateTopics", "orders", "")
    cluster.kill(3)
    patience = Patience("the timeline shows the failover and the elections")
    while {"failover", "election"} - {row["kind"] for row in console.get("local/timeline")["rows"]}:
        patience.check()
    seen = console.get("local/timeline?search=broker+3+left")
    assert seen["total"] == 1, "two brokers have noticed it, and it is one event"
    patience = Patience("both partitions are led again")
    while (
        sum(row["partitions"] for row in console.get("local/timeline?kinds=election&search=orders")["rows"])
        < 2
    ):
        patience.check()
    cluster.start(3)
    while not console.get("local/timeline?kinds=broker&search=3+joined")["total"]:
        patience.check()
    assert console.get("local/timeline/latest")["rows"]


def test_times_of_requests_are_plotted_and_shown_by_broker(cluster: Cluster, console: RunningConsole) -> None:
    patience = Patience("a look at the cluster has seen produce requests")
    series = "median-ms:Produce%0Aslow-ms:Produce%0Abytes-in"
    while True:
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send("orders", "one")
        history = console.get(f"local/history?series={series}")
        if any(history["slow-ms:Produce"]) and any(history["bytes-in"]):
            break
        patience.check()
    known = [at for at, slow in enumerate(history["slow-ms:Produce"]) if slow is not None]
    assert all(history["median-ms:Produce"][at] <= history["slow-ms:Produce"][at] for at in known)
    requests = console.get("local/brokers/1/requests")
    assert requests["known"]
    assert "DescribeActivity" in [row["name"] for row in requests["rows"]], "the console's own"


def test_every_replica_is_in_the_picture_of_partitions_over_brokers(console: RunningConsole) -> None:
    (row,) = console.get("local/spread?search=orders")["rows"]
    parts = row["brokers"].values()
    assert [part["replicas"] for part in parts] == [6, 6, 6]
    assert sum(part["leads"] for part in parts) == 6


@needs_browser
def test_a_person_sees_and_searches_the_timeline(browser: Browser, console: RunningConsole) -> None:
    with opened_page(browser, console.at("timeline")) as page:
        page.get_by_text("somebody created topic orders").wait_for()
        page.get_by_role("img", name="Changes:").wait_for()
        picture(page, "timeline")
        page.get_by_role("button", name="Brokers", exact=True).click()
        page.get_by_text("somebody created topic orders").wait_for(state="detached")
        assert "kinds=broker" in page.url
        show(page, "brokers")
        page.get_by_text("leads 2 of 6").or_(page.get_by_text("of 6")).first.wait_for()
        picture(page, "spread")


def test_a_quantile_lies_within_its_bucket_and_what_is_above_all_bounds_counts_as_the_last() -> None:
    bounds = [1.0, 10.0, 100.0]
    assert quantile([0, 0, 0, 0], bounds, 0.5) is None
    assert quantile([10, 0, 0, 0], bounds, 0.5) == 0.5
    assert quantile([50, 49, 1, 0], bounds, 0.99) == 10.0
    assert quantile([0, 0, 0, 5], bounds, 0.5) == 100.0


def test_a_timeline_keeps_a_bounded_number_of_events() -> None:
    timeline = Timeline()
    for number in range(3000):
        timeline.add(1, [BrokerEvent(id=number + 1, at_ms=number, kind="change", what=str(number))])
    events = timeline.events()
    assert (len(events), events[0].event.what, timeline.last_id(1)) == (2000, "1000", 3000)
