"""What delivery modes and profiles mean, and what they refuse; the tables in docs/client.md say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from forebay.client import presets
from forebay.client.presets import consumer_settings, producer_settings
from forebay.errors import ConfigError

DELIVERIES = ["at-most-once", "at-least-once", "exactly-once"]
DOCS = Path(__file__).parents[2] / "docs" / "client.md"


def producing(delivery: str = "at-least-once", settings: dict[str, Any] | None = None) -> dict[str, Any]:
    name = "worker" if delivery == "exactly-once" else None
    return producer_settings("a:1", delivery, "latency", name, settings)


def consuming(delivery: str = "at-least-once", settings: dict[str, Any] | None = None) -> dict[str, Any]:
    return consumer_settings("a:1", "group", delivery, "latency", "earliest", settings)


def test_only_at_most_once_gives_up_acknowledges_and_retries() -> None:
    found = {mode: producing(mode) for mode in DELIVERIES}
    assert found["at-most-once"]["acks"] == 0
    assert found["at-most-once"]["retries"] == 0
    for mode in ("at-least-once", "exactly-once"):
        assert found[mode]["acks"] == "all"
        assert found[mode]["enable.idempotence"] is True
        assert "retries" not in found[mode]


def test_at_most_once_may_ask_the_leader_to_answer() -> None:
    assert producer_settings("a:1", "at-most-once", "latency", None, None, 1)["acks"] == 1
    with pytest.raises(ConfigError, match="0 or 1"):
        producer_settings("a:1", "at-most-once", "latency", None, None, -1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="all replicas"):
        producer_settings("a:1", "at-least-once", "latency", None, None, 1)


def test_only_exactly_once_has_a_transactional_id() -> None:
    assert producing("exactly-once")["transactional.id"] == "worker"
    assert "transactional.id" not in producing("at-least-once")
    with pytest.raises(ConfigError, match="exactly-once"):
        producer_settings("a:1", "at-least-once", "latency", "worker", None)


def test_only_exactly_once_remembers_brokers_that_are_away() -> None:
    name = "metadata.recovery.strategy"
    assert [producing(mode).get(name) for mode in DELIVERIES] == [None, None, "none"]
    assert producing("exactly-once", {name: "rebootstrap"})[name] == "rebootstrap"


def test_only_at_least_once_lets_librdkafka_commit_and_none_lets_it_decide_what_is_done() -> None:
    commits = {mode: consuming(mode)["enable.auto.commit"] for mode in DELIVERIES}
    assert commits == {"at-most-once": False, "at-least-once": True, "exactly-once": False}
    assert not any(consuming(mode)["enable.auto.offset.store"] for mode in DELIVERIES)
    assert all(consuming(mode)["isolation.level"] == "read_committed" for mode in DELIVERIES)


@pytest.mark.parametrize(
    "name", ["acks", "request.required.acks", "retries", "enable.idempotence", "transactional.id"]
)
def test_a_producers_promise_cannot_be_set_away(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        producing("at-most-once", {name: 0})


@pytest.mark.parametrize(
    "name", ["enable.auto.commit", "enable.auto.offset.store", "isolation.level", "group.id"]
)
def test_a_consumers_promise_cannot_be_set_away(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        consuming(settings={name: "x"})


def test_everything_else_can_be_set() -> None:
    assert producing(settings={"linger.ms": 7})["linger.ms"] == 7
    assert consuming(settings={"session.timeout.ms": 7000})["session.timeout.ms"] == 7000


@pytest.mark.parametrize(
    ("delivery", "profile", "start", "named"),
    [
        ("twice", "latency", "earliest", "'at-least-once'"),
        ("at-least-once", "fast", "earliest", "'throughput'"),
        ("at-least-once", "latency", "middle", "'latest'"),
    ],
)
def test_an_unknown_word_is_told_what_to_write(delivery: str, profile: str, start: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        consumer_settings("a:1", "group", delivery, profile, start, None)


def test_servers_may_be_a_list() -> None:
    assert producer_settings(["a:1", "b:2"], "at-least-once", "latency", None, None)["bootstrap.servers"] == (
        "a:1,b:2"
    )


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("profile", ["throughput", "latency"])
def test_librdkafka_takes_every_combination(delivery: str, profile: str) -> None:
    name = "worker" if delivery == "exactly-once" else None
    nowhere = "127.0.0.1:1"
    confluent_kafka.Producer(producer_settings(nowhere, delivery, profile, name, {"log_level": 0}))
    chosen = consumer_settings(nowhere, "group", delivery, profile, "earliest", {"log_level": 0})
    confluent_kafka.Consumer(chosen).close()


def test_the_documentation_names_every_setting_with_its_value() -> None:
    text = DOCS.read_text(encoding="utf-8")
    tables = [
        presets.PRODUCER_DELIVERY,
        presets.PRODUCER_PROFILE,
        presets.CONSUMER_DELIVERY,
        presets.CONSUMER_PROFILE,
        {"": presets.CONSUMER_ALWAYS},
        {"": presets.CONSUMER_DEFAULTS},
        {"": presets.PRODUCER_DEFAULTS},
    ]
    for table in tables:
        for settings in table.values():
            for name, value in settings.items():
                shown = str(value).lower() if isinstance(value, bool) else str(value)
                row = next((line for line in text.splitlines() if line.startswith(f"| `{name}`")), "")
                assert f"`{shown}`" in row, f"{name}={shown} in docs/client.md"
