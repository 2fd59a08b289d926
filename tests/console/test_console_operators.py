"""What operators do in the console: brokers, transactions, users, access rules and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from forebay.client import Admin
from forebay.testing import Broker, Cluster
from support.brokers.forebay_command import forebay
from support.console.browser import needs_browser, opened_page, picture
from support.console.running_console import RunningConsole, running_console
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True) as started:
        yield started


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    properties = {str(key): str(value) for key, value in broker.client_settings.items()}
    with running_console(broker.bootstrap_servers, properties=properties) as started:
        yield started


def open_transaction(broker: Broker, transactional_id: str) -> Producer:
    settings = {**broker.client_settings, "bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**settings, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"half of it")
    assert producer.flush(60) == 0
    return producer


def test_an_open_transaction_is_shown_and_aborted(broker: Broker, console: RunningConsole) -> None:
    producer = open_transaction(broker, "import-1")
    (row,) = console.get("local/transactions?open=1")["rows"]
    assert (row["id"], row["state"], row["overdue"]) == ("import-1", "Ongoing", False)
    assert row["partitions"] == ["orders-0"]
    asked = console.post("local/transactions/import-1/abort")
    assert (asked.json["danger"], asked.json["name"]) == (True, "import-1")
    console.change("local/transactions/import-1/abort")
    patience = Patience("the transaction has ended")
    while console.get("local/transactions")["rows"][0]["open"]:
        patience.check()
    refused = console.post("local/transactions/import-1/abort", {"confirmed": True})
    assert refused.status == 502
    assert "has no open transaction" in refused.json["error"]
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        producer.commit_transaction(60)


def test_the_producers_of_a_topic_are_shown_with_their_open_transactions(
    broker: Broker, console: RunningConsole
) -> None:
    producer = open_transaction(broker, "import-2")
    (row,) = console.get("local/topics/orders/producers?open=1")["rows"]
    assert (row["partition"], row["sequence"]) == (0, 0)
    assert row["open_from"] is not None
    assert row["last"] is not None
    console.change("local/transactions/import-2/abort")
    patience = Patience("the transaction has ended on its partition")
    while console.get("local/topics/orders/producers")["open_all"]:
        patience.check()
    assert row["producer"] in [
        each["producer"] for each in console.get("local/topics/orders/producers")["rows"]
    ]
    del producer


def test_transactions_are_listed_and_aborted_by_commands() -> None:
    with Broker() as broker:
        producer = open_transaction(broker, "nightly")
        listed = forebay("transaction", "list", "--open", "--json", "-b", broker.bootstrap_servers)
        (found,) = listed.json()
        assert (found["transactional_id"], found["state"], found["overdue"]) == ("nightly", "Ongoing", False)
        done = forebay("transaction", "abort", "nightly", "--yes", "-b", broker.bootstrap_servers)
        assert done.out == "aborted the transaction of nightly\n"
        again = forebay("transaction", "abort", "nothing", "--yes", "-b", broker.bootstrap_servers)
        assert again.code == 1
        assert "nothing has no open transaction" in again.err
        del producer


def test_users_are_added_and_deleted(console: RunningConsole) -> None:
    added = console.change("local/users/add", {"name": "ada", "password": "correct horse"})
    assert added["command"] == "forebay user add ada", "the password is in no command line"
    assert "ada" in [row["name"] for row in console.get("local/users")["rows"]]
    wrong = console.post("local/users/add", {"name": "User:ada", "password": "x"})
    assert (wrong.status, wrong.json["field"]) == (422, "name")
    console.change("local/users/ada/delete")
    assert "ada" not in [row["name"] for row in console.get("local/users")["rows"]]
    assert console.post("local/users/ada/delete", {"confirmed": True}).status == 422


def test_rules_are_added_explained_and_deleted(console: RunningConsole) -> None:
    rule = {"principal": "bob", "operations": "read,describe", "resource": "topic", "name": "orders"}
    asked = console.post("local/acls/add", {**rule, "prefix": True})
    assert asked.json["command"] == "forebay acl add User:bob read,describe topic orders --prefix"
    console.change("local/acls/add", rule)
    found = console.get("local/acls?search=bob")["rows"]
    assert [(row["operation"], row["name"]) for row in found] == [("describe", "orders"), ("read", "orders")]
    assert console.get("local/acls/test?principal=bob&operation=read&name=orders")["allowed"]
    assert not console.get("local/acls/test?principal=bob&operation=write&name=orders")["allowed"]
    console.change("local/acls/delete", rule)
    assert console.get("local/acls?search=bob")["rows"] == []
    wrong = console.post("local/acls/add", {**rule, "operations": "write", "resource": "group"})
    assert wrong.status == 422
    assert "a group has no operation write" in wrong.json["error"]


def test_quotas_are_set_and_deleted(console: RunningConsole) -> None:
    wanted = {"parts": {"user": "ada"}, "key": "producer_byte_rate", "value": "1048576"}
    done = console.change("local/quotas/set", wanted)
    assert done["command"] == "forebay quota set producer_byte_rate=1048576 --user ada"
    (row,) = console.get("local/quotas")["rows"]
    assert (row["parts"], row["key"], row["value"]) == ({"user": "ada"}, "producer_byte_rate", 1048576)
    wrongs: list[dict[str, object]] = [
        {"value": "much"},
        {"value": "-1"},
        {"parts": {}},
        {"parts": {"ip": "nowhere"}},
    ]
    for wrong in wrongs:
        assert console.post("local/quotas/set", {**wanted, **wrong}).status == 422, wrong
    console.change("local/quotas/delete", wanted)
    assert console.get("local/quotas")["rows"] == []


def test_partitions_are_moved_away_from_a_broker_with_a_preview() -> None:
    with Cluster(brokers=2) as cluster, running_console(cluster.bootstrap_servers) as console:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=4, replication_factor=1)
        patience = Patience("the console sees the topic")
        while not console.get("local/topics")["all"]:
            patience.check()
        rows = console.get("local/brokers")["rows"]
        assert [row["drained"] for row in rows] == [False, False]
        leaving = next(row["id"] for row in rows if row["replicas"])
        asked = console.post(f"local/brokers/{leaving}/drain")
        assert any(line.startswith("orders-") for line in asked.json["details"]), "a preview"
        console.change(f"local/brokers/{leaving}/drain")
        patience = Patience("the broker is empty")
        while (job := console.get("local/brokers")["job"])["running"]:
            patience.check()
        assert (job["done"], job["problems"]) == (job["total"], [])
        patience = Patience("the console sees that")
        while not is_empty(console, leaving):
            patience.check()
        disk = console.get(f"local/brokers/{leaving}")["disk"]
        assert "orders" not in [row["name"] for row in disk["rows"]]
        console.change(f"local/brokers/{leaving}/take-back")
        console.change("local/brokers/rebalance")
        patience = Patience("both have partitions")
        while is_empty(console, leaving):
            patience.check()


def is_empty(console: RunningConsole, node: int) -> bool:
    rows = {row["id"]: row for row in console.get("local/brokers")["rows"]}
    return not rows[node]["replicas"]


@needs_browser
def test_a_person_sees_brokers_and_rules_and_adds_one(
    browser: Browser, console: RunningConsole, broker: Broker
) -> None:
    producer = open_transaction(broker, "open-for-long")
    with opened_page(browser, console.url) as page:
        page.get_by_role("link", name="Brokers", exact=True).click()
        page.get_by_text("None: no broker was found dead").wait_for()
        picture(page, "brokers")
        page.get_by_role("link", name="Broker 1").click()
        page.get_by_role("heading", name="Broker 1").wait_for()
        page.get_by_role("link", name="Settings").click()
        page.get_by_text("log.retention.hours", exact=True).or_(page.get_by_text("log.dirs")).first.wait_for()
        page.get_by_role("link", name="Transactions", exact=True).click()
        page.get_by_text("open-for-long").wait_for()
        picture(page, "transactions")
        page.get_by_role("link", name="Security", exact=True).click()
        page.get_by_role("link", name="Access rules").click()
        page.get_by_role("button", name="Add rule").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Who").fill("carol")
        dialog.get_by_label("Of what name").fill("orders")
        dialog.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Do it").click()
        page.get_by_text("User:carol", exact=True).wait_for()
        picture(page, "rules")
    producer.abort_transaction(60)
