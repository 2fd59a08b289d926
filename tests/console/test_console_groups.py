"""Consumer groups in the console: the list, lag by partition, resets with a preview, members."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from forebay.client import Admin, Producer, Record
from forebay.testing import Broker
from support.console.browser import needs_browser, opened_page, picture
from support.console.running_console import RunningConsole
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module", autouse=True)
def lagging_groups(broker: Broker, console: RunningConsole) -> None:
    """Ten messages in each of three partitions; `billing` has read 10, 7 and 4 of them."""
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=3)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(30):
            producer.send_record(Record(topic="orders", partition=number % 3, value=b"%d" % number))
    for name in ("billing", "team/export", "billing, eu"):
        commit(broker, name, 10, 7, 4)
    patience = Patience("the console sees the groups and the messages")
    while console.get("local/groups?search=billing&sort=-lag")["rows"][0:1] == [] or (
        console.get("local/groups?search=billing")["rows"][0]["lag"] != 9
    ):
        patience.check()


def commit(broker: Broker, group: str, *offsets: int) -> None:
    with consumer(broker, group) as one:
        places = [TopicPartition("orders", at, offset) for at, offset in enumerate(offsets)]
        one.commit(offsets=places, asynchronous=False)


@contextmanager
def consumer(broker: Broker, group: str, **settings: str) -> Iterator[Consumer]:
    given = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    one = Consumer({**given, **{name.replace("_", "."): value for name, value in settings.items()}})
    try:
        yield one
    finally:
        one.close()


def test_the_lag_of_a_group_with_a_comma_in_its_name_is_plotted(console: RunningConsole) -> None:
    wanted = "local/history?series=lag:billing,%20eu%0Alag:billing"
    history, patience = console.get(wanted), Patience("the history has a sample of the lag")
    while 9 not in history["lag:billing, eu"]:  # samples from before the commit have none
        patience.check()
        history = console.get(wanted)
    assert set(history) == {"t", "lag:billing, eu", "lag:billing"}


def test_how_long_a_group_is_behind_is_plotted_while_somebody_looks(console: RunningConsole) -> None:
    age = console.get("local/more-of-groups?names=billing")["billing"]["seconds"]
    history = console.get("local/history?series=seconds:billing")["seconds:billing"]
    assert max(each for each in history if each is not None) >= age > 0


def test_groups_are_listed_with_their_lag_in_messages_and_seconds(console: RunningConsole) -> None:
    rows = console.get("local/groups?sort=-lag")["rows"]
    billing = next(row for row in rows if row["name"] == "billing")
    assert (billing["lag"], billing["behind"], billing["topics"]) == (9, 2, ["orders"])
    more = console.get("local/more-of-groups?names=billing")["billing"]
    assert more["members"] == 0
    assert more["seconds"] > 0
    assert console.ask("GET", "/api/local/groups?sort=colour").status == 422


def test_a_group_shows_the_lag_of_every_partition(console: RunningConsole) -> None:
    group = console.get("local/groups/billing")
    assert group["strips"] == [{"topic": "orders", "partitions": [0, 1, 2], "lags": [0, 3, 6]}]
    rows = console.get("local/groups/billing/partitions?sort=-lag")["rows"]
    assert [(row["partition"], row["committed"], row["end"], row["lag"]) for row in rows] == [
        (2, 4, 10, 6),
        (1, 7, 10, 3),
        (0, 10, 10, 0),
    ]
    assert rows[0]["seconds"] > 0
    assert rows[2]["seconds"] == 0
    assert console.get("local/groups/team%2Fexport")["name"] == "team/export"
    assert console.ask("GET", "/api/local/groups/nothing").status == 404


def test_a_reset_is_previewed_and_does_what_was_shown(broker: Broker, console: RunningConsole) -> None:
    commit(broker, "moved", 10, 7, 4)
    before = console.get("local/groups/moved/reset?to=shift_by&value=-2&topics=orders:1,2")
    assert [(row["partition"], row["current"], row["new_offset"]) for row in before["rows"]] == [
        (1, 7, 5),
        (2, 4, 2),
    ]
    assert before["lag"] == 13
    choice = {"to": "shift_by", "value": "-2", "topics": "orders:1,2"}
    asked = console.post("local/groups/moved/reset", choice).json
    assert asked["details"] == ["orders-1: 7 → 5", "orders-2: 4 → 2"]
    assert asked["command"] == (
        "forebay group reset-offsets moved --shift-by=-2 --topic orders:1,2 --execute"
    )
    console.change("local/groups/moved/reset", choice)
    rows = console.get("local/groups/moved/partitions")["rows"]
    assert [row["committed"] for row in rows] == [10, 5, 2]
    wrong = console.ask("GET", "/api/local/groups/moved/reset?to=to_time&value=soon")
    assert (wrong.status, wrong.json["field"]) == (422, "value")
    missing = console.ask("GET", "/api/local/groups/moved/reset?to=to_latest&topics=nothing")
    assert (missing.status, missing.json["field"]) == (422, "topics")
    console.change("local/groups/moved/delete")
    assert console.ask("GET", "/api/local/groups/moved").status == 404


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_is_removed_and_a_group_with_members_is_not_reset(
    broker: Broker, console: RunningConsole, protocol: str
) -> None:
    name = f"live-{protocol}"
    with consumer(broker, name, group_protocol=protocol, client_id="reader-1") as one:
        one.subscribe(["orders"])
        patience = Patience("the member has its partitions")
        while len(one.assignment()) < 3:
            one.poll(0.1)
            patience.check()
        (member,) = console.get(f"local/groups/{name}")["members"]
        assert (member["client"], member["partitions"]) == ("reader-1", 3)
        refused = console.post(
            f"local/groups/{name}/reset", {"to": "to_latest", "topics": "orders", "confirmed": True}
        )
        assert refused.status == 502
        assert "stop its consumers first" in refused.json["error"]
        done = console.change(f"local/groups/{name}/remove-member", {"member": member["id"]})
        assert done["command"] == f"forebay group remove-member {name} {member['id']}"
        assert console.get(f"local/groups/{name}")["members"] == []


@needs_browser
def test_a_person_resets_a_group_after_seeing_every_partition(
    browser: Browser, broker: Broker, console: RunningConsole
) -> None:
    commit(broker, "replayed", 10, 7, 4)
    with opened_page(browser, console.url) as page:
        page.get_by_role("link", name="Groups", exact=True).click()
        page.get_by_role("link", name="replayed").click()
        page.get_by_text("2 of 3 partitions behind").wait_for()
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_text("30 messages be left to read").wait_for()
        page.get_by_label("Go to").select_option("to_time")
        page.get_by_role("textbox", name="Time").fill("soon")
        page.get_by_text("is no time").wait_for()
        page.get_by_label("Go to").select_option("to_latest")
        page.get_by_text("2 partitions of 3 would change").wait_for()
        picture(page, "group-reset")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("orders-2: 4 → 10").wait_for()
        page.get_by_role("button", name="Do it").click()
        page.get_by_text("reset 3 partitions of group replayed").wait_for()
        page.get_by_role("link", name="Partitions").click()
        page.get_by_role("row", name="orders-2").get_by_text("0 s").wait_for()
