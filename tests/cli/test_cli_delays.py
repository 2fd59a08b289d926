"""Messages that wait, by the command line, against a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from forebay.client import Consumer, Producer, Record
from forebay.operations.delays.delay_lists import time_left
from forebay.wire.batch import records, split
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import Done, forebay
from support.clients.kafka_clients import DEADLINE_SECONDS, create_topic
from support.clients.wire_client import WireClient, read

HOUR_S = 3600


class Delays:
    """A topic of two partitions in which four messages wait: for one hour to four hours."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.ids: list[str] = []

    def schedule(self) -> None:
        with Producer(self.bootstrap, profile="latency") as producer:
            for hours, partition in ((3, 0), (1, 0), (2, 1), (4, 1)):
                record = Record(
                    topic=self.topic,
                    key=f"key-{hours}",
                    value=f"in {hours} h",
                    headers={"trace": str(hours)},
                    partition=partition,
                    deliver_after=hours * HOUR_S,
                    schedule_key=f"at-{hours}" if hours < 3 else None,
                )
                self.ids.append(producer.send_and_wait(record).schedule_id)
        assert eventually(lambda: self.listed()["pending"] == 4)

    def __call__(self, verb: str, *arguments: str) -> Done:
        return forebay("delay", verb, self.topic, *arguments, bootstrap=self.bootstrap)

    def ok(self, verb: str, *arguments: str) -> Done:
        done = self(verb, *arguments)
        assert done.code == 0, done.err
        return done

    def listed(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ok("list", "--json", *arguments).json()
        return found

    def keys(self, *arguments: str) -> list[str]:
        return [each["key"] for each in self.listed(*arguments)["messages"]]


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def empty(broker: BrokerProcess, topic: str) -> Delays:
    create_topic(broker.bootstrap, topic, 2, forebay_delay_enable="true")
    return Delays(broker.bootstrap, topic)


@pytest.fixture
def delays(empty: Delays) -> Delays:
    empty.schedule()
    return empty


def test_list_has_what_is_due_first_first(delays: Delays) -> None:
    assert delays.keys() == ["key-1", "key-2", "key-3", "key-4"]
    assert delays.keys("--partition", "1") == ["key-2", "key-4"]
    assert delays.keys("--limit", "3") == ["key-1", "key-2", "key-3"]
    first = delays.listed()["messages"][0]
    assert (first["id"], first["schedule_key"], first["value_bytes"]) == (delays.ids[1], "at-1", 6)
    assert first["due_ms"] == first["scheduled_ms"] + HOUR_S * 1000


def test_list_shows_a_table_and_how_many_more_there_are(delays: Delays) -> None:
    done = delays.ok("list", "--limit", "1")
    heading, row = done.out.splitlines()
    assert heading.split("  ")[0] == "ID"
    assert row.split()[0] == delays.ids[1]
    assert "key-1" in row
    assert done.err == "3 more wait\n"


def test_list_says_when_nothing_waits(empty: Delays) -> None:
    assert empty.listed() == {"pending": 0, "messages": []}
    assert "no message waits" in empty.ok("list").err


def test_show(delays: Delays) -> None:
    found = delays.ok("show", delays.ids[2], "--json").json()
    assert (found["id"], found["key"], found["value"]) == (delays.ids[2], "key-2", "in 2 h")
    assert {"name": "trace", "value": "2"} in found["headers"]
    text = delays.ok("show", delays.ids[2]).out
    for part in (delays.ids[2], "at-2", "trace=2", "key-2", "in 2 h"):
        assert part in text
    missing = delays("show", "1-4711")
    assert (missing.code, "1-4711 does not wait" in missing.err) == (1, True)


def test_cancel(delays: Delays) -> None:
    assert delays.ok("cancel", delays.ids[0], delays.ids[3]).out.startswith("cancelled 2 messages")
    assert eventually(lambda: delays.keys() == ["key-1", "key-2"])
    assert delays.ok("cancel", delays.ids[0]).out.startswith("cancelled 1 message "), "it can be run again"
    again = delays("cancel", "1-4711", delays.ids[1])
    assert again.code == 1
    assert again.out.startswith("cancelled 1 message ")
    assert "1-4711: does not wait" in again.err
    assert eventually(lambda: delays.keys() == ["key-2"])


def test_cancel_all_asks_first(delays: Delays) -> None:
    refused = delays("cancel", "--all")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert delays.ok("cancel", "--all", "--yes").out.startswith("cancelled 4 messages")
    assert eventually(lambda: delays.listed()["pending"] == 0)


def test_fire(delays: Delays) -> None:
    assert delays.ok("fire", delays.ids[3], delays.ids[0]).out.startswith("fired 2 messages")
    with Consumer(delays.bootstrap, delays.topic, group=delays.topic, profile="latency") as consumer:
        seen = {
            message.value: message.header("forebay-schedule-id")
            for message in (next(consumer), next(consumer))
        }
    assert seen == {b"in 3 h": delays.ids[0].encode(), b"in 4 h": delays.ids[3].encode()}
    assert eventually(lambda: delays.keys() == ["key-1", "key-2"])


def test_many_large_messages_are_fired_in_batches_that_the_topic_allows(
    broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap, topic, forebay_delay_enable="true", max_message_bytes="3000")
    with Producer(broker.bootstrap, profile="latency") as producer:
        for number in range(5):
            record = Record(topic=topic, value=b"%d" % number * 2000, deliver_after=HOUR_S)
            producer.send_and_wait(record)
    fired = forebay("delay", "fire", topic, "--all", "--yes", bootstrap=broker.bootstrap)
    assert (fired.code, fired.out.split()[:2]) == (0, ["fired", "5"])
    sizes: list[int] = []
    found: list[bytes | None] = []
    with WireClient(broker.bootstrap) as client:
        data = bytes(read(client, topic).records or b"")
        for position, header in split(data):
            if not header.is_control and header.record_count:
                sizes.append(header.size)
                found += [record.value for record in records(data[position : position + header.size])]
    assert found == [b"%d" % number * 2000 for number in range(5)]
    assert max(sizes) <= 3000


@pytest.mark.parametrize(
    "arguments", [("cancel",), ("fire",), ("cancel", "0-1", "--all"), ("show", "17"), ("fire", "a-1")]
)
def test_what_is_not_named_rightly_is_refused(empty: Delays, arguments: tuple[str, ...]) -> None:
    assert empty(*arguments).code == 2


def test_topics_in_which_nothing_can_wait(broker: BrokerProcess, topic: str) -> None:
    missing = forebay("delay", "list", f"{topic}-missing", bootstrap=broker.bootstrap)
    assert (missing.code, "there is no topic" in missing.err) == (1, True)
    create_topic(broker.bootstrap, topic)
    plain = forebay("delay", "list", topic, bootstrap=broker.bootstrap)
    assert (plain.code, "forebay.delay.enable" in plain.err) == (1, True)
    partition = forebay("delay", "list", topic, "--partition", "7", bootstrap=broker.bootstrap)
    assert (partition.code, "no partition 7" in partition.err) == (1, True)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "now"),
        (0, "now"),
        (1, "1s"),
        (59_001, "1m"),
        (61_000, "1m 1s"),
        (3_600_000, "1h"),
        (90_061_000, "1d 1h"),
        (86_400_000 + 5_000, "1d 5s"),
    ],
)
def test_time_left_has_two_units(milliseconds: int, text: str) -> None:
    assert time_left(milliseconds) == text
