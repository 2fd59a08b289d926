"""The lists of the console's server, and what people do with topics."""

from __future__ import annotations

import pytest

from forebay.client import Admin, Producer
from forebay.testing import Broker
from support.console.running_console import RunningConsole
from support.waiting import Patience


@pytest.fixture(scope="module", autouse=True)
def some_topics(broker: Broker, console: RunningConsole) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        for number in range(120):
            admin.create_topic(f"many-{number:03d}", partitions=1)
        admin.create_topic("orders", partitions=3)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(30):
            producer.send("orders", f"message {number}")
    patience = Patience("the console sees all of it")
    while console.get("local/overview")["messages"] < 30 or console.get("local/topics")["all"] < 121:
        patience.check()


def test_topics_are_searched_sorted_and_paged_on_the_server(console: RunningConsole) -> None:
    first = console.get("local/topics?size=50")
    assert (first["total"], first["pages"], len(first["rows"])) == (121, 3, 50)
    last = console.get("local/topics?size=50&page=3")
    assert [row["name"] for row in last["rows"]][-1] == "orders"
    found = console.get("local/topics?search=any+11&sort=-name")
    assert [row["name"] for row in found["rows"]] == [f"many-{n}" for n in range(119, 109, -1)] + ["many-011"]
    most = console.get("local/topics?sort=-messages&size=1")
    assert (most["rows"][0]["name"], most["rows"][0]["messages"]) == ("orders", 30)
    only = console.get("local/topics?only=orders,many-007")
    assert [row["name"] for row in only["rows"]] == ["many-007", "orders"]


def test_wrong_input_is_answered_with_the_field_that_is_wrong(console: RunningConsole) -> None:
    assert console.ask("GET", "/api/local/topics?sort=colour").status == 422
    assert console.ask("GET", "/api/local/topics?page=x").status == 422
    taken = console.post("local/topics/create", {"name": "orders"})
    assert (taken.status, taken.json["field"]) == (422, "name")
    many = console.post("local/topics/create", {"name": "new", "partitions": "many"})
    assert (many.status, many.json["field"]) == (422, "partitions")
    assert console.ask("GET", "/api/local/topics/nothing").status == 404
    assert console.ask("GET", "/api/elsewhere/topics").status == 404


def test_a_topic_is_created_changed_grown_and_deleted_after_a_question(console: RunningConsole) -> None:
    asked = console.post("local/topics/create", {"name": "made", "partitions": "2"})
    assert asked.json["command"] == "forebay topic create made --partitions 2"
    assert console.ask("GET", "/api/local/topics/made").status == 404

    created = console.change(
        "local/topics/create", {"name": "made", "partitions": "2", "configs": {"retention.ms": "60000"}}
    )
    assert created["done"].startswith("created topic made")
    assert console.get("local/topics/made")["partitions"] == 2

    console.change("local/topics/made/settings", {"configs": {"retention.ms": "120000"}})
    settings = {row["name"]: row for row in console.get("local/topics/made/settings")["rows"]}
    assert settings["retention.ms"]["value"] == "120000"
    assert settings["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    console.change("local/topics/made/settings", {"deleted": ["retention.ms"]})
    settings = {row["name"]: row for row in console.get("local/topics/made/settings")["rows"]}
    assert settings["retention.ms"]["source"] == "DEFAULT_CONFIG"

    grown = console.change("local/topics/made/partitions", {"count": "4"})
    assert grown["command"] == "forebay topic alter made --partitions 4"
    assert console.get("local/topics/made")["partitions"] == 4
    console.change("local/topics/made/partitions", {"count": 2})
    assert console.get("local/topics/made/folds")["folded_into"] != {}

    asked = console.post("local/topics/made/delete")
    assert (asked.json["danger"], asked.json["name"]) == (True, "made")
    console.change("local/topics/made/delete")
    assert console.ask("GET", "/api/local/topics/made").status == 404


def test_a_refusal_of_the_broker_is_passed_on(console: RunningConsole) -> None:
    wrong = {"configs": {"retention.ms": "soon"}, "confirmed": True}
    answer = console.post("local/topics/orders/settings", wrong)
    assert answer.status == 502
    assert "retention.ms" in answer.json["error"]


def test_the_overview_says_what_there_is_and_that_all_is_well(console: RunningConsole) -> None:
    overview = console.get("local/overview")
    assert overview["problems"] == []
    assert len(overview["brokers"]) == 1
    assert overview["topics"] >= 121
    assert overview["messages"] >= 30
    history = console.get("local/history?series=in%0Alag%0Anothing")
    assert len(history["t"]) == len(history["lag"]) == len(history["nothing"]) > 0
