"""Share groups by the command line, against a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka import Message as Received

from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import Done, forebay
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    Message,
    confluent_consumer,
    create_topic,
)
from support.waiting import Patience

HOUR_MS = 3_600_000


class Share:
    """A share group that begins with a topic of two partitions: 10 messages, one a minute, and 2 new ones."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.begin_ms = time.time_ns() // 1_000_000 - HOUR_MS

    def __call__(self, verb: str, *arguments: str) -> Done:
        return forebay("share", verb, self.name, *arguments, bootstrap=self.bootstrap)

    def ok(self, verb: str, *arguments: str) -> Done:
        done = self(verb, *arguments)
        assert done.code == 0, done.err
        return done

    def starts(self) -> dict[int, int]:
        partitions = self.ok("describe", "--json").json()["partitions"]
        return {each["partition"]: each["start_offset"] for each in partitions}

    def reset(self, *arguments: str) -> dict[int, int]:
        done = self.ok("reset-offsets", *arguments, "--execute", "--json").json()
        assert done["executed"] is True
        planned = {each["partition"]: each["new_offset"] for each in done["partitions"]}
        assert {at: self.starts()[at] for at in planned} == planned
        return planned

    def consume(self, *arguments: str) -> Done:
        done = forebay("consume", self.name, "--share", self.name, *arguments, bootstrap=self.bootstrap)
        assert done.code == 0, done.err
        return done

    def consumer(self) -> ShareConsumer:
        return ShareConsumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name,
                "client.id": "teller",
                "share.acknowledgement.mode": "explicit",
            }
        )

    def set(self, *settings: str) -> None:
        done = forebay("config", "set", "group", self.name, *settings, bootstrap=self.bootstrap)
        assert done.code == 0, done.err


@pytest.fixture
def share(broker: BrokerProcess, topic: str) -> Share:
    create_topic(broker.bootstrap, topic, 2)
    share = Share(broker.bootstrap, topic)
    times = [share.begin_ms + 60_000 * n for n in range(10)]
    messages = [Message(b"%d" % n, timestamp=at) for n, at in enumerate(times)]
    new = [Message(b"new", partition=1)] * 2
    CLIENTS[0].produce(broker.bootstrap, topic, [*messages, *new])
    share.set("share.auto.offset.reset=earliest")
    return share


@pytest.fixture
def begun(share: Share) -> Share:
    """No members; both partitions begin at their first message."""
    share.ok("reset-offsets", "--to-earliest", "--topic", share.name, "--execute")
    return share


@pytest.fixture
def member(begun: Share) -> Iterator[ShareConsumer]:
    """A live member that holds messages."""
    with begun.consumer() as consumer:
        consumer.subscribe([begun.name])
        take(consumer)
        yield consumer


def take(consumer: ShareConsumer) -> list[Received]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (messages := list(consumer.poll(0.2))):
        assert time.monotonic() < deadline, "no messages"
    return messages


def test_list(begun: Share) -> None:
    listed = forebay("share", "list", "--json", bootstrap=begun.bootstrap).json()
    assert {"group": begun.name, "state": "Empty", "members": 0, "topics": [begun.name]} in listed
    lines = forebay("share", "list", bootstrap=begun.bootstrap).out.splitlines()
    assert lines[0].split() == ["GROUP", "STATE", "MEMBERS", "TOPICS"]
    assert [begun.name, "Empty", "0", begun.name] in [line.split() for line in lines]


def test_lag_in_messages_and_seconds(begun: Share) -> None:
    assert begun.reset("--to-offset", "4") == {0: 4, 1: 2}
    described = begun.ok("describe", "--json").json()
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 6)
    behind, level = described["partitions"]
    assert (behind["start_offset"], behind["lag"], behind["members"]) == (4, 6, 0)
    age_s = time.time() - (begun.begin_ms / 1000 + 240)
    assert age_s - 60 < behind["lag_seconds"] <= age_s
    assert (level["start_offset"], level["lag"], level["lag_seconds"]) == (2, 0, 0)
    assert described["lag_seconds"] == behind["lag_seconds"]


def test_describe_shows_the_settings_in_force(begun: Share) -> None:
    begun.set("share.record.lock.duration.ms=15000", "forebay.share.retry.backoff.ms=250")
    settings = begun.ok("describe", "--json").json()["settings"]
    assert settings["share.record.lock.duration.ms"] == "15000"
    assert settings["forebay.share.retry.backoff.ms"] == "250"
    assert settings["share.delivery.count.limit"] == "5"
    assert settings["share.isolation.level"] == "read_uncommitted"
    lines = [line.split() for line in begun.ok("describe").out.splitlines()]
    assert ["share.record.lock.duration.ms", "15000"] in lines


def test_describe_for_people(begun: Share, member: ShareConsumer) -> None:
    lines = begun.ok("describe").out.splitlines()
    assert lines[0] == f"share group {begun.name}  Stable"
    assert lines[1].split() == ["MEMBER", "CLIENT", "HOST", "PARTITIONS"]
    assert lines[2].split()[1] == "teller"
    assert lines[2].split()[-1] == f"{begun.name}-0,{begun.name}-1"
    assert lines[4].split() == ["TOPIC", "PARTITION", "START", "LAG", "SECONDS", "MEMBERS"]
    assert lines[5].split()[:4] == [begun.name, "0", "0", "10"]
    assert lines[5].split()[-1] == "1"
    assert lines[7].startswith("total lag: 12 messages, ")


def test_describe_shows_what_is_held_and_what_waits_for_a_dead_letter_topic(begun: Share) -> None:
    begun.set(f"errors.deadletterqueue.topic.name={begun.name}")  # which it reads itself
    with begun.consumer() as consumer:
        consumer.subscribe([begun.name])
        first, *others = take(consumer)
        consumer.acknowledge(first, AcknowledgeType.REJECT)
        consumer.commit_sync()
        deadline = time.monotonic() + DEADLINE_SECONDS
        window: dict[str, Any] = {}
        while not window.get("dead_letter_problem"):
            assert time.monotonic() < deadline, window
            partitions = begun.ok("describe", "--json").json()["partitions"]
            window = partitions[first.partition()]["window"]
        assert "reads its dead-letter topic" in window["dead_letter_problem"]
        assert (window["dead_letters_waiting"], window["waiting_for_retry"]) == (1, 0)
        assert (window["held"], window["offsets_max"]) == (len(others), 2000)
        (holder,) = window["holders"]
        assert (holder["records"], holder["oldest_lock_ms"] > 0) == (len(others), True)
        done = begun.ok("describe")
        assert "dead letters wait" in done.err
        lines = [line.split() for line in done.out.splitlines()]
        assert ["TOPIC", "PARTITION", "WINDOW", "HELD", "RETRY", "DEAD"] in lines
        assert ["HOLDER", "PARTITION", "RECORDS", "LOCKED", "FOR"] in lines


@pytest.mark.parametrize("verb", ["describe", "delete"])
def test_an_unknown_share_group_is_said(broker: BrokerProcess, verb: str) -> None:
    yes = ["--yes"] if verb == "delete" else []
    done = forebay("share", verb, "nobody-knows-it", *yes, bootstrap=broker.bootstrap)
    assert (done.code, done.out) == (1, "")
    assert "there is no share group nobody-knows-it" in done.err


def test_a_group_of_another_kind_is_not_touched(share: Share) -> None:
    consumer = confluent_consumer(share.bootstrap, group_id=share.name)
    try:
        consumer.subscribe([share.name])
        patience = Patience("the member gets its partition")
        while not consumer.assignment():
            patience.check()
            consumer.poll(0.05)
    finally:
        consumer.close()
    assert "there is no share group" in share("delete", "--yes").err
    assert (
        "there is no share group"
        in share("reset-offsets", "--to-latest", "--topic", share.name, "--execute").err
    )
    groups = forebay("group", "list", "--json", bootstrap=share.bootstrap).json()
    assert share.name in [group["group"] for group in groups]


def test_a_reset_changes_nothing_before_it_is_told_to(begun: Share) -> None:
    done = begun.ok("reset-offsets", "--to-latest")
    assert "nothing was changed: add --execute" in done.err
    assert done.out.splitlines()[1].split() == [begun.name, "0", "0", "10", "0"]
    assert begun.starts() == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to-latest"], {0: 10, 1: 2}),
        (["--to-offset", "7"], {0: 7, 1: 2}),
        (["--to-time", "30m"], {0: 10, 1: 0}),
        (["--to-time", "@0"], {0: 0, 1: 0}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_reset(begun: Share, arguments: list[str], expected: dict[int, int]) -> None:
    assert begun.reset(*arguments) == expected


def test_reset_of_some_partitions(begun: Share) -> None:
    assert begun.reset("--to-latest", "--topic", f"{begun.name}:1") == {1: 2}
    assert begun.starts() == {0: 0, 1: 2}


def test_a_reset_delivers_again_what_was_accepted(begun: Share) -> None:
    assert len(begun.consume("--count", "12", "--timeout", "60").out.splitlines()) == 12
    assert begun.starts() == {0: 10, 1: 2}
    assert begun.reset("--to-offset", "8") == {0: 8, 1: 2}
    assert begun.consume("--count", "2", "--timeout", "60").out.splitlines() == ["8", "9"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give one of --to-earliest, --to-latest, --to-offset, --to-time"),
        (["--to-earliest", "--to-offset", "3"], "give one of --to-earliest"),
        (["--to-latest", "--topic", "a:b"], "'a:b' is not TOPIC or TOPIC:0,1"),
    ],
)
def test_a_reset_that_makes_no_sense(share: Share, arguments: list[str], problem: str) -> None:
    done = share("reset-offsets", *arguments)
    assert done.code == 2
    assert problem in done.err


def test_a_reset_of_a_group_that_is_not_there_yet(share: Share) -> None:
    assert "has begun with no topic yet" in share("reset-offsets", "--to-latest").err


def test_a_group_with_members_stays_as_it_is(begun: Share, member: ShareConsumer) -> None:
    refused = f"share group {begun.name} has members: stop its consumers first"
    for verb, *arguments in (
        ("reset-offsets", "--to-latest", "--execute"),
        ("delete", "--topic", begun.name, "--yes"),
        ("delete", "--yes"),
    ):
        done = begun(verb, *arguments)
        assert done.code == 1
        assert refused in done.err
    assert begun.starts() == {0: 0, 1: 0}


def test_delete(begun: Share) -> None:
    asked = begun("delete")
    assert (asked.code, "needs --yes" in asked.err) == (2, True)
    assert begun.ok("delete", "--yes").out == f"deleted share group {begun.name}\n"
    assert begun("describe").code == 1


def test_delete_of_a_topic(begun: Share) -> None:
    done = begun.ok("delete", "--topic", begun.name, "--yes")
    assert done.out == f"deleted {begun.name} from share group {begun.name}\n"
    assert begun.starts() == {}
    again = begun("delete", "--topic", begun.name, "--yes")
    assert again.code == 1
    assert "there is nothing to delete (UNKNOWN_TOPIC_OR_PARTITION)" in again.err


def test_consume_accepts_what_it_prints(share: Share) -> None:
    first = share.consume("--count", "12", "--timeout", "60", "-f", "%p %v\\n").out.splitlines()
    assert sorted(first) == sorted([*(f"0 {n}" for n in range(10)), "1 new", "1 new"])
    assert share.starts() == {0: 10, 1: 2}
    CLIENTS[0].produce(share.bootstrap, share.name, [Message(b"more", partition=0)])
    assert share.consume("--count", "1", "--timeout", "60").out == "more\n"


def test_consume_gives_back_what_it_does_not_print(share: Share) -> None:
    """The client is given whole batches, which are larger than what is wanted."""
    printed = []
    for _ in range(4):
        printed += share.consume("--count", "3", "--timeout", "60").out.splitlines()
    assert sorted(printed) == sorted([*map(str, range(10)), "new", "new"])


def test_consume_shows_how_often_a_message_was_delivered(begun: Share) -> None:
    with begun.consumer() as consumer:
        consumer.subscribe([begun.name])
        released = {(message.partition(), message.offset()) for message in take(consumer)}
    lines = begun.consume("--count", "12", "--timeout", "60", "--json").json_lines()
    again = {(line["partition"], line["offset"]) for line in lines if line["delivery_count"] == 2}
    assert again == released
    assert {line["delivery_count"] for line in lines} <= {1, 2}


@pytest.mark.parametrize("option", ["--exit-at-end", "--from-beginning", "--read-uncommitted"])
def test_consume_from_a_share_group_refuses_what_does_not_go_with_it(
    broker: BrokerProcess, option: str
) -> None:
    done = forebay("consume", "t", "--share", "g", option, bootstrap=broker.bootstrap)
    assert done.code == 2
    assert "share.auto.offset.reset" in done.err


def test_consume_from_a_topic_that_is_not_there(broker: BrokerProcess) -> None:
    done = forebay("consume", "nowhere", "--share", "g", bootstrap=broker.bootstrap)
    assert (done.code, "there is no topic nowhere" in done.err) == (1, True)
