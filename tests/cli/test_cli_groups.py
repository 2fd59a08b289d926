"""Groups by the command line, against a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from forebay.operations.groups.group_lag import total_lag_seconds
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import Done, forebay
from support.clients.kafka_clients import CLIENTS, DEADLINE_SECONDS, Message, confluent_consumer, create_topic
from support.waiting import Patience

HOUR_MS = 3_600_000


class Group:
    """A group with offsets in a topic of two partitions: 10 messages, one a minute, and 2 new ones."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.begin_ms = time.time_ns() // 1_000_000 - HOUR_MS

    def __call__(self, *arguments: str) -> Done:
        verb, *rest = arguments
        return forebay("group", verb, self.name, *rest, bootstrap=self.bootstrap)

    def ok(self, *arguments: str) -> Done:
        done = self(*arguments)
        assert done.code == 0, done.err
        return done

    def commit(self, *offsets: int) -> None:
        consumer = confluent_consumer(self.bootstrap, group_id=self.name)
        try:
            places = [TopicPartition(self.name, at, offset) for at, offset in enumerate(offsets)]
            consumer.commit(offsets=places, asynchronous=False)
        finally:
            consumer.close()

    def committed(self) -> dict[int, int]:
        partitions = self.ok("describe", "--json").json()["partitions"]
        return {each["partition"]: each["committed"] for each in partitions}

    def reset(self, *arguments: str) -> dict[int, int]:
        done = self.ok("reset-offsets", *arguments, "--execute", "--json").json()
        assert done["executed"] is True
        planned = {each["partition"]: each["new_offset"] for each in done["partitions"]}
        assert {at: self.committed()[at] for at in planned} == planned
        return planned


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> Group:
    create_topic(broker.bootstrap, topic, 2)
    group = Group(broker.bootstrap, topic)
    times = [group.begin_ms + 60_000 * n for n in range(10)]
    messages = [Message(b"%d" % n, timestamp=at) for n, at in enumerate(times)]
    new = [Message(b"new", partition=1)] * 2
    CLIENTS[0].produce(broker.bootstrap, topic, [*messages, *new])
    group.commit(4, 2)
    return group


@pytest.fixture
def member(group: Group) -> Iterator[Consumer]:
    """A live member that has been given its partitions."""
    consumer = confluent_consumer(group.bootstrap, group_id=group.name, client_id="teller")
    try:
        consumer.subscribe([group.name])
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(consumer.assignment()) < 2:
            assert time.monotonic() < deadline, "no assignment"
            consumer.poll(0.05)
        yield consumer
    finally:
        consumer.close()


def test_list(group: Group) -> None:
    listed = forebay("group", "list", "--json", bootstrap=group.bootstrap).json()
    expected = {"group": group.name, "state": "Empty", "type": "Classic", "simple": True}
    assert expected in listed
    lines = forebay("group", "list", bootstrap=group.bootstrap).out.splitlines()
    assert [group.name, "Empty", "Classic"] in [line.split() for line in lines]


def test_lag_in_messages_and_seconds(group: Group) -> None:
    described = group.ok("describe", "--json").json()
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 6)
    behind, level = described["partitions"]
    assert (behind["committed"], behind["end_offset"], behind["lag"]) == (4, 10, 6)
    # Its fifth message is four minutes younger than an hour.
    age_s = time.time() - (group.begin_ms / 1000 + 240)
    assert age_s - 60 < behind["lag_seconds"] <= age_s
    assert (level["committed"], level["lag"], level["lag_seconds"]) == (2, 0, 0)
    assert described["lag_seconds"] == behind["lag_seconds"]


def test_describe_for_people(group: Group, member: Consumer) -> None:
    lines = group.ok("describe").out.splitlines()
    assert lines[0] == f"group {group.name}  Stable  Classic  assignor range"
    assert lines[1].split() == ["MEMBER", "CLIENT", "HOST", "INSTANCE", "PARTITIONS"]
    assert lines[2].split()[1] == "teller"
    assert lines[2].split()[-1] == "2"
    assert lines[5].split()[:5] == [group.name, "0", "4", "10", "6"]
    assert lines[5].split()[-1] == lines[2].split()[0]
    assert lines[-1].startswith("total lag: 6 messages, ")


def test_a_member_without_commits_is_shown_with_its_partitions(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    consumer = confluent_consumer(broker.bootstrap, group_id=topic, group_instance_id="teller-1")
    try:
        consumer.subscribe([topic])
        patience = Patience("the member gets its partition")
        while not consumer.assignment():
            patience.check()
            consumer.poll(0.05)
        described = forebay("group", "describe", topic, "--json", bootstrap=broker.bootstrap).json()
    finally:
        consumer.close()
    assert described["members"][0]["instance"] == "teller-1"
    (only,) = described["partitions"]
    assert (only["committed"], only["lag"], only["lag_seconds"]) == (None, None, None)
    assert only["member"] == described["members"][0]["member"]


def test_an_unknown_group_is_said(broker: BrokerProcess) -> None:
    done = forebay("group", "describe", "nobody-knows-it", bootstrap=broker.bootstrap)
    assert (done.code, done.out) == (1, "")
    assert "there is no group nobody-knows-it" in done.err


def test_a_reset_changes_nothing_before_it_is_told_to(group: Group) -> None:
    done = group.ok("reset-offsets", "--to-earliest")
    assert "nothing was changed: add --execute" in done.err
    assert done.out.splitlines()[1].split() == [group.name, "0", "4", "0", "10"]
    assert group.committed() == {0: 4, 1: 2}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 2}),
        (["--to-offset", "1"], {0: 1, 1: 1}),
        (["--to-offset", "7"], {0: 7, 1: 2}),
        (["--shift-by=-3"], {0: 1, 1: 0}),
        (["--shift-by", "3"], {0: 7, 1: 2}),
        (["--to-time", "30m"], {0: 10, 1: 0}),
        (["--to-time", "@0"], {0: 0, 1: 0}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_reset(group: Group, arguments: list[str], expected: dict[int, int]) -> None:
    assert group.reset(*arguments) == expected


def test_reset_to_the_time_of_a_message(group: Group) -> None:
    assert group.reset("--to-time", f"@{group.begin_ms + 60_000 * 6}")[0] == 6
    assert group.reset("--to-time", f"@{group.begin_ms + 60_000 * 6 + 1}")[0] == 7


def test_reset_of_some_partitions(group: Group) -> None:
    assert group.reset("--to-earliest", "--topic", f"{group.name}:1") == {1: 0}
    assert group.committed() == {0: 4, 1: 0}


def test_reset_of_a_group_that_is_not_there_yet(group: Group) -> None:
    new = Group(group.bootstrap, f"{group.name}-new")
    assert "has committed nothing yet" in new("reset-offsets", "--to-latest").err
    assert new.reset("--to-latest", "--topic", group.name) == {0: 10, 1: 2}


def test_a_reset_under_a_live_member_is_refused(group: Group, member: Consumer) -> None:
    done = group("reset-offsets", "--to-earliest", "--execute")
    assert done.code == 1
    assert "is Stable with 1 members: stop its consumers first" in done.err
    assert group.committed() == {0: 4, 1: 2}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give one of --to-earliest"),
        (["--to-earliest", "--to-offset", "3"], "give one of --to-earliest"),
        (["--to-offset", "-3"], "-3 is not in the range"),
        (["--to-time", "yesterday"], "'yesterday' is no time: give a time"),
        (["--to-latest", "--topic", "a:b"], "'a:b' is not TOPIC or TOPIC:0,1"),
    ],
)
def test_a_reset_that_makes_no_sense(group: Group, arguments: list[str], problem: str) -> None:
    done = group("reset-offsets", *arguments)
    assert done.code == 2
    assert problem in done.err


def test_a_reset_of_what_is_not_there(group: Group) -> None:
    assert "there is no topic" in group("reset-offsets", "--to-latest", "--topic", "nowhere").err
    done = group("reset-offsets", "--to-latest", "--topic", f"{group.name}:7")
    assert f"topic {group.name} has no partition 7: it has 0 to 1" in done.err


def fail_for_partition_1(monkeypatch: pytest.MonkeyPatch, kind: str, code: int) -> None:
    """Its look-ups of this kind of offset are answered with an error."""
    real = AdminClient.list_offsets

    def list_offsets(self: AdminClient, wanted: dict[TopicPartition, Any], **options: Any) -> Any:
        futures = real(self, wanted, **options)
        for place, spec in wanted.items():
            if place.partition == 1 and type(spec).__name__ == kind:
                futures[place] = Future()
                futures[place].set_exception(KafkaException(KafkaError(code)))
        return futures

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)


@pytest.mark.parametrize("failing", ["EarliestSpec", "LatestSpec", "TimestampSpec"])
def test_a_reset_that_cannot_ask_every_partition_changes_none(
    group: Group, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    fail_for_partition_1(monkeypatch, failing, KafkaError.LEADER_NOT_AVAILABLE)
    done = group("reset-offsets", "--to-time", "30m", "--execute")
    assert done.code == 1
    assert "nothing was changed" in done.err
    assert f"{group.name}-1: Broker: Leader not available (LEADER_NOT_AVAILABLE)" in done.err
    monkeypatch.undo()
    assert group.committed() == {0: 4, 1: 2}


def test_a_reset_names_what_is_there_no_more(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_for_partition_1(monkeypatch, "LatestSpec", KafkaError.UNKNOWN_TOPIC_OR_PART)
    done = group.ok("reset-offsets", "--to-latest", "--execute")
    assert f"left out: {group.name}-1 is there no more" in done.err
    monkeypatch.undo()
    assert group.committed() == {0: 10, 1: 2}


def test_delete(group: Group) -> None:
    asked = group("delete")
    assert (asked.code, "needs --yes" in asked.err) == (2, True)
    assert group.ok("delete", "--yes").out == f"deleted group {group.name}\n"
    assert group("describe").code == 1
    again = group("delete", "--yes")
    assert again.code == 1
    assert "GROUP_ID_NOT_FOUND" in again.err


def test_a_group_with_members_is_not_deleted(group: Group, member: Consumer) -> None:
    done = group("delete", "--yes")
    assert done.code == 1
    assert "NON_EMPTY_GROUP" in done.err
    assert group.committed() == {0: 4, 1: 2}


@pytest.mark.parametrize(
    ("partitions", "seconds"),
    [
        ([(0, 0.0), (6, 12.5), (3, 2.0)], 12.5),
        ([(0, 0.0), (0, 0.0)], 0.0),
        ([(0, 0.0), (6, None)], None),
        ([(0, 0.0), (None, None)], None),
        ([(6, 12.5), (3, None)], None),
        ([], None),
    ],
)
def test_a_lag_in_seconds_that_is_unknown_is_not_shown_as_zero(
    partitions: list[tuple[int | None, float | None]], seconds: float | None
) -> None:
    """As where the one who asks may not read the messages, or one of them did not come in time."""
    found = [{"lag": lag, "lag_seconds": age_s} for lag, age_s in partitions]
    assert total_lag_seconds(found) == seconds
