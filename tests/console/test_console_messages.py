"""Messages in the console: searched on the server, shown as text, downloaded, sent."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import pytest
from confluent_kafka import Producer

from forebay.client import Admin
from forebay.testing import Broker
from support.console.running_console import RunningConsole
from support.waiting import Patience

COUNT = 3000
HOSTILE = b"<script>alert(1)</script><img src=x onerror=alert(2)>"
HUGE = b"x" * 10_000_000


@pytest.fixture(scope="module", autouse=True)
def filled(broker: Broker, console: RunningConsole) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=3)
        admin.create_topic("odd", partitions=1, config={"max.message.bytes": "20000000"})
        admin.create_topic("again", partitions=1)
        admin.create_topic("paid", partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 20_000_000})
    for number in range(COUNT):
        value = json.dumps({"id": number, "amount": number % 100, "who": f"Person-{number % 7}"})
        headers: dict[str, str | bytes | None] = {"trace": f"t{number}"} if number % 10 == 0 else {}
        producer.produce(
            "orders",
            key=f"key-{number % 50}",
            value=value,
            headers=headers,
            partition=number % 3,
            timestamp=1_700_000_000_000 + number,
        )
    odd: list[tuple[bytes | None, bytes | None]] = [
        (b"script", HOSTILE),
        (b"huge", HUGE),
        (b"\xff\xfe", b"\x00\x00\x00\x00\x07\xffbinary\x80"),
        (None, None),
        (b"", b""),
        (b"long number", b'{"n": 123456789012345678901234567890}'),
    ]
    for key, value_bytes in odd:
        producer.produce("odd", key=key, value=value_bytes)
        producer.flush()
    assert producer.flush(60) == 0
    patience = Patience("the console sees all of it")
    while (
        console.get("local/topics/orders")["messages"] < COUNT
        or console.get("local/topics/odd")["messages"] < 6
    ):
        patience.check()


def search(console: RunningConsole, topic: str, **query: Any) -> Any:
    return console.get(f"local/topics/{topic}/messages?{urllib.parse.urlencode(query)}")


def every_page(console: RunningConsole, topic: str, **query: Any) -> list[Any]:
    rows: list[Any] = []
    cursor = ""
    for _ in range(COUNT):
        page = search(console, topic, cursor=cursor, **query)
        rows += page["rows"]
        cursor = page["cursor"]
        if not cursor:
            return rows
    raise AssertionError("it does not end")


def ids(rows: list[Any]) -> list[int]:
    return [json.loads(row["value"]["text"])["id"] for row in rows]


def test_the_newest_come_first_and_pages_have_every_message_once(console: RunningConsole) -> None:
    first = search(console, "orders", limit=50)
    assert ids(first["rows"]) == list(range(COUNT - 1, COUNT - 51, -1))
    assert first["examined"] < 500
    assert ids(every_page(console, "orders", limit=500)) == list(range(COUNT - 1, -1, -1))
    assert ids(every_page(console, "orders", limit=500, **{"from": "beginning"})) == list(range(COUNT))


def test_messages_are_found_by_place_key_header_text_and_condition(console: RunningConsole) -> None:
    at_offset = search(console, "orders", partition=1, limit=1, **{"from": "10"})["rows"][0]
    assert (at_offset["partition"], at_offset["offset"]) == (1, 10)
    at_time = search(console, "orders", limit=2, **{"from": "@1700000000100"})
    assert ids(at_time["rows"]) == [100, 101]
    last = search(console, "orders", partition=2, **{"from": "-2"})
    assert len(last["rows"]) == 2
    by_key = every_page(console, "orders", key="key-7", limit=500)
    assert ids(by_key) == list(range(COUNT - 43, -1, -50))
    by_header = every_page(console, "orders", header="trace=t20")
    assert ids(by_header) == [20]
    assert len(every_page(console, "orders", header="trace", limit=500)) == COUNT // 10
    by_text = search(console, "orders", text="PERSON-3", limit=3)
    assert all("Person-3" in row["value"]["text"] for row in by_text["rows"])
    by_condition = every_page(console, "orders", where="value.amount > 97 AND key = 'key-48'", limit=500)
    assert ids(by_condition) == [n for n in range(COUNT - 1, -1, -1) if n % 100 > 97 and n % 50 == 48]
    assert every_page(console, "orders", text="nowhere to be found") == []


def test_wrong_searches_say_what_is_wrong(console: RunningConsole) -> None:
    for query, field in (
        ("where=value.amount+%3E", "where"),
        ("from=yesterday", "from"),
        ("partition=9", "partition"),
        ("cursor=nonsense", "cursor"),
        ("limit=100000", "limit"),
    ):
        answer = console.ask("GET", f"/api/local/topics/orders/messages?{query}")
        assert (answer.status, answer.json["field"]) == (422, field)
    assert console.ask("GET", "/api/local/topics/orders/messages/0/999999").status == 404
    assert console.ask("GET", "/api/local/topics/orders/messages/99/0").status == 404


def test_hostile_huge_and_binary_messages_are_shown_as_harmless_text(console: RunningConsole) -> None:
    rows = {row["offset"]: row for row in search(console, "odd")["rows"]}
    assert rows[0]["value"] == {"kind": "text", "text": HOSTILE.decode(), "size": len(HOSTILE), "cut": False}
    assert (rows[1]["value"]["cut"], rows[1]["value"]["size"], len(rows[1]["value"]["text"])) == (
        True,
        10_000_000,
        1000,
    )
    assert (rows[2]["key"]["kind"], rows[2]["value"]["kind"], rows[2]["value"]["schema_id"]) == (
        "hex",
        "hex",
        7,
    )
    assert (rows[3]["key"]["kind"], rows[3]["value"]["kind"]) == ("null", "null")
    assert (rows[4]["key"]["kind"], rows[4]["value"]["kind"]) == ("empty", "empty")
    assert rows[5]["value"]["kind"] in ("json", "text")

    alone = console.get("local/topics/odd/messages/0/1")
    assert (len(alone["value"]["text"]), alone["value"]["cut"]) == (1 << 20, True)
    file = console.ask("GET", "/api/local/topics/odd/messages/0/1/value")
    assert file.body == HUGE
    script = console.ask("GET", "/api/local/topics/odd/messages/0/0/value")
    assert script.headers["content-type"] == "application/octet-stream"
    assert script.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in script.headers["content-security-policy"]


def test_what_was_found_is_exported_as_json_and_csv(console: RunningConsole) -> None:
    lines = console.ask("GET", "/api/local/topics/orders/export?key=key-7&limit=5").body.splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["key-7"] * 5
    table = console.ask("GET", "/api/local/topics/orders/export?format=csv&limit=2")
    assert table.headers["content-type"].startswith("text/csv")
    assert table.body.decode().splitlines()[0] == "partition,offset,timestamp,key,value,headers"
    assert len(table.body.decode().splitlines()) == 3


def test_a_message_is_sent_and_sent_again(console: RunningConsole) -> None:
    sent = console.change(
        "local/topics/again/produce", {"key": "k", "value": "it's", "headers": [["a", "b=c"]]}
    )
    assert sent["done"] == "sent again-0@0"
    assert sent["command"] == """echo 'it'"'"'s' | forebay produce again --key k --header a=b=c"""
    console.change("local/topics/odd/messages/0/2/resend", {"target": "again"})
    first, second = every_page(console, "again", **{"from": "beginning"})
    assert (first["key"]["text"], first["value"]["text"], first["headers"][0][0]) == ("k", "it's", "a")
    assert second["value"] == search(console, "odd")["rows"][3]["value"]
    assert console.post("local/topics/again/produce", {"value": "x", "partition": "5"}).status == 422
    assert console.post("local/topics/again/produce", {"value": 17}).status == 422
    missing = console.post("local/topics/again/messages/0/0/resend", {"target": "nowhere"})
    assert (missing.status, missing.json["field"]) == (422, "target")


def test_aborted_and_open_transactions_are_hidden_unless_asked_for(
    console: RunningConsole, broker: Broker
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "console"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("paid", value="aborted")
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.produce("paid", value="committed")
    producer.commit_transaction()
    producer.begin_transaction()
    producer.produce("paid", value="open")
    producer.flush()
    shown = [row["value"]["text"] for row in search(console, "paid")["rows"]]
    assert shown == ["committed"]
    every = [row["value"]["text"] for row in search(console, "paid", uncommitted=1)["rows"]]
    assert every == ["open", "committed", "aborted"]
    producer.abort_transaction()


def test_reading_leaves_no_group_behind(console: RunningConsole) -> None:
    assert console.get("local/overview")["groups"] == 0
