"""Thousands of topics: lists are searched and cut on the server, and a look costs brokers few requests."""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from forebay.console.pages.cluster.overview import overview
from forebay.console.pages.topics.topic_list import topics
from forebay.console.watch.cluster_access import ClusterAccess
from forebay.console.web.asking import Ask
from forebay.operations.client import Client
from forebay.operations.wire import WireConnection
from forebay.testing import Broker
from forebay.wire.messages.describe_activity import DescribeActivityRequest, DescribeActivityResponse
from support.console.browser import needs_browser, opened_page, picture
from support.console.running_console import RunningConsole, running_console
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_AT_ONCE = 500
_ANSWER_BYTES_MAX = 40_000
_CALLS_PER_TOPIC_MAX = 60
_ASKED_BY_LOOKS = ("Metadata", "ListOffsets", "ListGroups", "DescribeLogDirs")


@pytest.fixture(scope="module", params=[600, pytest.param(5000, marks=pytest.mark.chaos)])
def many(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def broker(many: int) -> Iterator[Broker]:
    with Broker(process=True) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap_servers})
        names = [f"topic-{number:05}" for number in range(many)]
        for begin in range(0, many, _AT_ONCE):
            new = [NewTopic(name, 1, 1) for name in names[begin : begin + _AT_ONCE]]
            for made in admin.create_topics(new, request_timeout=300, operation_timeout=300).values():
                made.result(300)
        yield started


@pytest.fixture(scope="module")
def console(broker: Broker, many: int) -> Iterator[RunningConsole]:
    with running_console(broker.bootstrap_servers) as started:
        patience = Patience("the console sees all topics")
        while started.get("local/overview")["topics"] < many:
            patience.check()
        yield started


def test_answers_are_small_however_many_topics_there_are(console: RunningConsole, many: int) -> None:
    for path in ("overview", "topics", "topics?sort=-size&page=3", "spread", "delays", "timeline"):
        answer = console.ask("GET", f"/api/local/{path}")
        assert (answer.status, len(answer.body) < _ANSWER_BYTES_MAX) == (200, True), path
    listed = console.get(f"local/topics?search={many - 1:05}")
    assert [row["name"] for row in listed["rows"]] == [f"topic-{many - 1:05}"]


@pytest.mark.usefixtures("console")
def test_a_look_costs_the_broker_a_few_requests(broker: Broker) -> None:
    """No more than for a few topics; those for what changes slowly included."""
    with WireConnection.open(Client(bootstrap=broker.bootstrap_servers)) as connection:
        assert connection.serves(DescribeActivityRequest)

        def counted() -> dict[str, int]:
            answer = connection.ask(DescribeActivityRequest(), DescribeActivityResponse)
            return {each.name: each.count for each in answer.times}

        before = counted()
        patience = Patience("the console has looked again")
        while counted()["Metadata"] < before.get("Metadata", 0) + 3:
            patience.check()
        after = counted()
    looks = after["Metadata"] - before.get("Metadata", 0)
    for name in _ASKED_BY_LOOKS:
        assert after.get(name, 0) - before.get(name, 0) <= 2 * looks + 2, name


def test_pages_do_little_work_for_each_topic(broker: Broker, console: RunningConsole, many: int) -> None:
    """The overview of 5,000 topics takes 55 ms with 25 calls for each topic, and may take 300 ms. Calls of
    functions are counted, since they do not depend on the machine."""
    cluster = console.settings.clusters[0]
    access = ClusterAccess(cluster, Client(bootstrap=broker.bootstrap_servers), console.settings)
    access.start()
    try:
        patience = Patience("a second look, with rates")
        while len(access.snapshot().topics) < many or access.snapshot().number < 2:
            patience.check()
        for page, query in ((overview, {}), (topics, {}), (topics, {"sort": "-size", "search": "topic"})):
            calls = calls_of(page, Ask(cluster=access, path={}, query=query))
            assert calls < _CALLS_PER_TOPIC_MAX * many + 10_000, page.__name__
    finally:
        access.close()


def calls_of(page: Callable[[Ask], Any], ask: Ask) -> int:
    """The calls of functions, ours and the interpreter's, that an answer takes."""
    profile = cProfile.Profile()
    profile.runcall(page, ask)
    return sum(entry.callcount for entry in profile.getstats())


@needs_browser
def test_a_person_finds_one_of_thousands_of_topics(
    browser: Browser, console: RunningConsole, many: int
) -> None:
    with opened_page(browser, console.url) as page:
        page.get_by_text(f"{many:,}", exact=True).first.wait_for()
        page.get_by_role("link", name="Topics", exact=True).click()
        page.get_by_text(f"1 to 50 of {many:,}").wait_for()
        assert page.locator("tbody tr").count() == 50
        page.get_by_role("button", name="Next").click()
        page.get_by_text(f"51 to 100 of {many:,}").wait_for()
        page.get_by_role("link", name="topic-00050").wait_for()
        picture(page, "many-topics")
        page.keyboard.press("/")
        page.keyboard.type(f"{many - 1:05}")
        page.get_by_role("link", name=f"topic-{many - 1:05}").wait_for()
        page.get_by_text("1 topic", exact=True).wait_for()
        assert page.locator("tbody tr").count() == 1
        page.get_by_role("link", name=f"topic-{many - 1:05}").click()
        page.get_by_role("heading", name=f"topic-{many - 1:05}").wait_for()
