"""Topics and settings by the command line, against a real broker."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import confluent_kafka
import pytest

from forebay.operations.topics.partition_counts import Closed, Copies, closing_note
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import Done, forebay
from support.brokers.replicated import until
from support.clients.kafka_clients import DEADLINE_SECONDS


class Forebay:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        return forebay(*arguments, bootstrap=self._bootstrap, stdin=stdin)

    def ok(self, *arguments: str, stdin: str = "") -> Done:
        done = self(*arguments, stdin=stdin)
        assert done.code == 0, done.err
        return done


@pytest.fixture
def run(broker: BrokerProcess) -> Forebay:
    return Forebay(broker.bootstrap)


def test_create_and_list(run: Forebay, topic: str) -> None:
    assert run.ok("topic", "create", topic, "--partitions", "3").out == f"created topic {topic}\n"
    assert {"topic": topic, "partitions": 3, "replication_factor": 1} in run.ok(
        "topic", "list", "--json"
    ).json()
    (line,) = [line for line in run.ok("topic", "list").out.splitlines() if line.startswith(f"{topic} ")]
    assert line.split() == [topic, "3", "1"]


def test_create_twice(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic)
    again = run("topic", "create", topic)
    assert again.code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert "already" in run.ok("topic", "create", topic, "--if-not-exists").out


def test_create_with_settings_and_describe(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic, "--partitions", "2", "--config", "retention.ms=60000")
    run.ok("produce", topic, "--partition", "1", stdin="a\nb\n")
    described = run.ok("topic", "describe", topic, "--json").json()
    assert described["topic"] == topic
    assert described["configs"] == {"retention.ms": "60000"}
    first, second = described["partitions"]
    assert (first["partition"], first["start_offset"], first["end_offset"]) == (0, 0, 0)
    assert (second["partition"], second["start_offset"], second["end_offset"]) == (1, 0, 2)
    assert second["leader"] == 1
    assert second["replicas"] == second["isr"] == [1]
    text = run.ok("topic", "describe", topic).out
    assert "settings: retention.ms=60000" in text
    assert text.splitlines()[3].split() == ["1", "1", "1", "1", "0", "2", "2"]
    assert topic in {each["topic"] for each in run.ok("topic", "describe", "--json").json()}


def test_alter(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic, "--config", "retention.ms=60000", "--config", "segment.bytes=1048576")
    run.ok(
        "topic",
        "alter",
        topic,
        "--partitions",
        "4",
        "--config",
        "retention.ms=5000",
        "--delete-config",
        "segment.bytes",
    )
    described = run.ok("topic", "describe", topic, "--json").json()
    assert len(described["partitions"]) == 4
    assert described["configs"] == {"retention.ms": "5000"}


def test_delete(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic)
    done = run("topic", "delete", topic, f"{topic}-missing", "--yes")
    assert done.code == 1
    assert done.out == f"deleted topic {topic}\n"
    assert f"{topic}-missing" in done.err
    assert topic not in {each["topic"] for each in run.ok("topic", "list", "--json").json()}


def test_a_topic_that_is_not_there(run: Forebay, topic: str) -> None:
    for arguments in (
        ["topic", "describe", topic],
        ["topic", "alter", topic, "--partitions", "2"],
        ["consume", topic],
    ):
        done = run(*arguments)
        assert done.code == 1
        assert f"there is no topic {topic}" in done.err
    assert topic not in {each["topic"] for each in run.ok("topic", "list", "--json").json()}, (
        "asking created it"
    )


def test_invalid_names_and_settings_are_refused_with_the_reason(run: Forebay, topic: str) -> None:
    assert (
        "INVALID_TOPIC" in run("topic", "create", "not/allowed").err.upper()
        or "TOPIC_EXCEPTION" in run("topic", "create", "not/allowed").err
    )
    done = run("topic", "create", topic, "--config", "retention.ms=soon")
    assert done.code == 1
    assert "retention.ms" in done.err


def test_config_of_a_topic(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic)
    assert run.ok("config", "get", "topic", topic, "retention.ms").out == "1209600000\n"
    run.ok("config", "set", "topic", topic, "retention.ms=7000", "max.message.bytes=2000")
    assert run.ok("config", "get", "topic", topic, "retention.ms").out == "7000\n"
    entry = run.ok("config", "get", "topic", topic, "retention.ms", "--json").json()
    assert entry["source"] == "DYNAMIC_TOPIC_CONFIG"
    run.ok("config", "set", "topic", topic, "--delete", "retention.ms")
    entries = {entry["name"]: entry for entry in run.ok("config", "get", "topic", topic, "--json").json()}
    assert entries["retention.ms"]["value"] == "1209600000"
    assert entries["retention.ms"]["source"] != "DYNAMIC_TOPIC_CONFIG"
    assert entries["max.message.bytes"]["value"] == "2000"


def test_all_settings_of_one_command_or_none(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic)
    done = run("config", "set", "topic", topic, "retention.ms=7000", "segment.bytes=tiny")
    assert done.code == 1
    assert "segment.bytes" in done.err
    assert run.ok("config", "get", "topic", topic, "retention.ms").out == "1209600000\n"


def test_config_of_a_broker(run: Forebay) -> None:
    lines = run.ok("config", "get", "broker", "1").out.splitlines()
    assert lines[0].split() == ["KEY", "VALUE", "FROM"]
    assert any(line.split()[:2] == ["node.id", "1"] for line in lines)


def test_config_of_all_brokers(fresh_broker: BrokerProcess) -> None:
    run = Forebay(fresh_broker.bootstrap)
    assert (
        run.ok("config", "set", "broker", "all", "log.retention.ms=3600000").out == "configured all brokers\n"
    )
    assert run.ok("config", "get", "broker", "all", "log.retention.ms").out == "3600000\n"
    assert run.ok("config", "get", "broker", "1", "log.retention.ms").out == "3600000\n"
    run.ok("config", "set", "broker", "1", "log.retention.ms=7200000")
    assert run.ok("config", "get", "broker", "1", "log.retention.ms").out == "7200000\n"
    run.ok("config", "set", "broker", "all", "--delete", "log.retention.ms")
    assert run.ok("config", "get", "broker", "all", "--json").json() == []
    refused = run("config", "set", "broker", "all", "node.id=7")
    assert refused.code == 1 and "node.id" in refused.err and "Traceback" not in refused.err


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "create", ""),
        ("topic", "describe", ""),
        ("topic", "delete", ""),
        ("config", "get", "topic", ""),
        ("config", "set", "broker", "", "a=b"),
        ("group", "describe", ""),
        ("produce", ""),
        ("consume", ""),
    ],
)
def test_an_empty_name_is_an_error_of_one_line(run: Forebay, command: tuple[str, ...]) -> None:
    done = run(*command)
    assert done.code == 2 and "it is empty" in done.err and "Traceback" not in done.err


def test_a_key_that_is_not_there_is_told_the_nearest(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic)
    done = run("config", "get", "topic", topic, "retenton.ms")
    assert done.code == 1
    assert "did you mean retention.ms?" in done.err


def test_fewer_partitions(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic, "--partitions", "12", "--config", "retention.ms=3600000")
    run.ok("produce", topic, "--partition", "7", stdin="old\n")
    refused = run("topic", "alter", topic, "--partitions", "5")
    assert refused.code == 1 and "--allow-key-moves" in refused.err and "INVALID_PARTITIONS" in refused.err
    early = run("topic", "alter", topic, "--partitions", "4", "--drop-after", "1m")
    assert early.code == 1 and "forebay.fold.grace.ms" in early.err
    assert run("topic", "alter", topic, "--partitions", "4", "--drop-after", "soon").code == 2
    assert run("topic", "alter", topic, "--drop-after", "1h").code == 2
    assert "folded" not in run.ok("topic", "describe", topic).out
    run.ok("topic", "alter", topic, "--partitions", "4", "--drop-after", "2h")
    run.ok("produce", topic, "--partition", "7", stdin="new\n")
    described = run.ok("topic", "describe", topic, "--json").json()
    assert [part["folded_into"] for part in described["partitions"]] == [None] * 4 + [0, 1, 2, 3] * 2
    assert described["closed"]["drop_ms"] - described["closed"]["since_ms"] == 7_200_000
    assert [described["partitions"][index]["end_offset"] for index in (3, 7)] == [1, 1]
    text = run.ok("topic", "describe", topic).out
    assert "partitions 4 to 11 are folded since" in text and "at the latest" in text
    assert "FOLDED INTO" in text
    again = run("topic", "alter", topic, "--partitions", "2")
    assert again.code == 1 and "being folded already" in again.err


def test_what_is_said_of_partitions_that_are_copied() -> None:
    def note(following: int, into: Mapping[int, int], drop_ms: int | None = None) -> str:
        return closing_note(Closed(into, 0, drop_ms, Copies(4, following, 12)), retention_ms=-1)

    begun = note(4, {})
    assert "partitions 4 to 11 are being folded: 0 of 8 copied" in begun and "partition 4 is being" in begun
    assert "3 of 8 copied" in note(7, {4: 0, 5: 1, 6: 2})
    ended = {index: index % 4 for index in range(4, 12)}
    assert "all of 8 copied" in note(12, ended) and "forebay.fold.grace.ms" in note(12, ended)
    assert "1970-01-0" in note(12, ended, drop_ms=86_400_000)


def open_transaction(bootstrap: str, topic: str, partition: int) -> confluent_kafka.Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"value", b"key", partition=partition)
    producer.flush(DEADLINE_SECONDS)
    return producer


def test_partitions_that_come_back_wait_for_open_transactions(
    broker: BrokerProcess, run: Forebay, topic: str
) -> None:
    run.ok("topic", "create", topic, "--partitions", "4")
    run.ok("topic", "alter", topic, "--partitions", "2")
    producer = open_transaction(broker.bootstrap, topic, 3)
    run.ok("topic", "alter", topic, "--partitions", "4")

    def described() -> dict[str, Any]:
        found: dict[str, Any] = run.ok("topic", "describe", topic, "--json").json()["closed"]
        return found

    until(lambda: described()["gathering"] == [] and described()["draining"] == [1], "3 is open again")
    (reason,) = described()["waits_for"]
    assert reason.startswith("transactions are open in partition 1: producer ")
    text = run.ok("topic", "describe", topic).out
    assert "closed partitions are back; partition 1 is waiting" in text and f"waits: {reason}" in text
    producer.commit_transaction(DEADLINE_SECONDS)
    until(lambda: described() is None, "the change is over")


def test_partitions_that_are_copied_wait_for_open_transactions(
    broker: BrokerProcess, run: Forebay, topic: str
) -> None:
    run.ok("topic", "create", topic, "--partitions", "4", "--config", "cleanup.policy=compact")
    producer = open_transaction(broker.bootstrap, topic, 2)
    run.ok("topic", "alter", topic, "--partitions", "2")
    text = run.ok("topic", "describe", topic).out
    assert "partitions 2 to 3 are being folded: 0 of 2 copied" in text
    assert "waits: transactions are open in partition 2: producer " in text
    producer.abort_transaction(DEADLINE_SECONDS)
    until(lambda: "all of 2 copied" in run.ok("topic", "describe", topic).out, "all is copied")


def test_what_is_said_of_partitions_that_come_back() -> None:
    def note(gathering: tuple[int, ...], into: Mapping[int, int] = MappingProxyType({})) -> str:
        return closing_note(Closed(into, 0, None, None, gathering, (0, 1)), retention_ms=1000)

    assert note((4, 5)).startswith("partitions 4, 5 are coming back")
    assert "partitions 0, 1 are waiting" in note(())
    growing, folded = note((4,), {5: 1}).splitlines()
    assert growing.startswith("partition 4 is coming back") and folded.startswith("partition 5 is folded")
