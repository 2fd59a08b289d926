"""The events that a broker remembers for the console's timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from forebay.broker.telemetry.recent_events import RecentEvents
from forebay.client import Admin
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.registration import BrokerRegistration
from forebay.operations.client import Client
from forebay.operations.wire import WireConnection
from forebay.testing import Broker
from forebay.wire.messages.describe_activity import DescribeActivityRequest, DescribeActivityResponse

NOW_MS = 1_800_000_000_000


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


def test_elections_of_one_second_are_one_event_which_names_a_few() -> None:
    clock = Hand()
    events = RecentEvents(10, clock)
    for index in range(40):
        events.elected("orders", index)
    assert events.after(0) == [], "there may be more of them"
    clock.ms += 1000
    (found,) = events.after(0)
    assert (found.kind, found.partitions, found.at_ms) == ("election", 40, NOW_MS)
    assert found.what == "orders-0, orders-1, orders-2, orders-3, orders-4 and 35 more"
    assert events.after(found.id) == []


def test_brokers_that_come_go_and_are_restarted_are_noted_and_so_is_another_controller() -> None:
    events = RecentEvents(10, Hand())
    one = BrokerRegistration(id=1, host="a", port=1, process="x")
    two = BrokerRegistration(id=2, host="b", port=1, process="y")
    before = ClusterImage(cluster_id="c", brokers={1: one}, controller=1)
    after = replace(before, brokers={1: replace(one, process="z"), 2: two}, controller=2)
    events.follow(before, after)
    events.follow(after, replace(after, brokers={1: one}, controller=-1))
    assert [each.what for each in events.after(0)] == [
        "broker 2 joined",
        "broker 1 was restarted",
        "broker 2 is the controller",
        "broker 2 left",
        "broker 1 was restarted",
    ]


def test_only_the_last_are_kept_and_ids_grow_when_the_clock_goes_back() -> None:
    clock = Hand()
    events = RecentEvents(3, clock)
    facts = {"principal": "User:ada", "client": "host:1", "api": "CreateTopics", "result": "NONE"}
    for number in range(5):
        clock.ms -= 100
        events.changed({**facts, "what": f"topic-{number}"})
    found = events.after(0)
    assert [each.what for each in found] == ["topic-2", "topic-3", "topic-4"]
    assert [each.id for each in found] == sorted(each.id for each in found)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def test_a_broker_tells_what_administrators_changed_and_how_long_requests_took(broker: Broker) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=2)
    connection = WireConnection.open(Client(bootstrap=broker.bootstrap_servers))
    try:
        assert connection.serves(DescribeActivityRequest)
        answer = connection.ask(DescribeActivityRequest(), DescribeActivityResponse)
        (change,) = [each for each in answer.events if each.kind == "change"]
        assert (change.api, change.what, change.result) == ("CreateTopics", "orders", "NONE")
        assert change.principal == "User:ANONYMOUS"
        (create,) = [each for each in answer.times if each.name == "CreateTopics"]
        assert create.count == sum(create.counts) == 1
        assert len(create.counts) == len(answer.bounds_ms) + 1
        again = connection.ask(
            DescribeActivityRequest(events_after=answer.events[-1].id), DescribeActivityResponse
        )
        assert again.events == []
    finally:
        connection.close()
