"""`forebay quota`: quotas come and go, and it says which one counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess, running_broker
from support.brokers.forebay_command import Done, forebay


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data: Path = tmp_path_factory.mktemp("quotas") / "data"
    with running_broker(data) as broker:
        yield broker


def quota(broker: BrokerProcess, *arguments: str) -> Done:
    return forebay("quota", *arguments, bootstrap=broker.bootstrap)


def test_quotas_come_and_go_and_the_most_specific_one_counts(running: BrokerProcess) -> None:
    made = quota(running, "set", "--user", "ada", "producer_byte_rate=1048576", "request_percentage=12.5")
    assert made.out == "set quota of user ada: producer_byte_rate=1048576, request_percentage=12.5\n", (
        made.err
    )
    assert (
        quota(running, "set", "--client-defaults", "producer_byte_rate=5", "consumer_byte_rate=7").code == 0
    )
    assert quota(running, "set", "--user", "ada", "--client-id", "etl", "consumer_byte_rate=9").code == 0
    assert quota(running, "set", "--ip-defaults", "connection_creation_rate=100").code == 0

    listed = quota(running, "list", "--json").json()
    assert {"entity": {"user": "ada", "client-id": "etl"}, "quotas": {"consumer_byte_rate": 9.0}} in listed
    assert len(listed) == 4
    table = quota(running, "list", "--user", "ada").out.splitlines()
    assert [line.split() for line in table[1:]] == [
        ["ada", "-", "-", "producer_byte_rate", "1048576"],
        ["ada", "-", "-", "request_percentage", "12.5"],
        ["ada", "etl", "-", "consumer_byte_rate", "9"],
    ]
    assert "(default)" in quota(running, "list", "--client-defaults").out

    shown = quota(running, "show", "--user", "ada", "--client-id", "etl", "--json").json()
    assert shown == {
        "producer_byte_rate": {"value": 1048576.0, "set_for": {"user": "ada"}},
        "consumer_byte_rate": {"value": 9.0, "set_for": {"user": "ada", "client-id": "etl"}},
        "request_percentage": {"value": 12.5, "set_for": {"user": "ada"}},
        "controller_mutation_rate": None,
    }
    other = quota(running, "show", "--client-id", "other").out
    assert "producer_byte_rate" in other and "the default client-id" in other and "unlimited" in other
    assert quota(running, "show", "--ip", "10.0.0.7").out.splitlines()[1].split() == [
        "connection_creation_rate",
        "100",
        "the",
        "default",
        "ip",
    ]

    assert quota(running, "delete", "--user", "ada", "producer_byte_rate").out == (
        "deleted quota of user ada: producer_byte_rate\n"
    )
    again = quota(running, "delete", "--user", "ada", "producer_byte_rate")
    assert (again.code, "there is no producer_byte_rate of user ada" in again.err) == (1, True)
    assert quota(running, "delete", "--client-defaults").code == 0
    gone = quota(running, "delete", "--client-defaults")
    assert (gone.code, "it has none" in gone.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["set", "producer_byte_rate=1"], "whose quota?"),
        (["set", "--user", "a", "--user-defaults", "producer_byte_rate=1"], "not both"),
        (["set", "--user", "a", "--ip", "10.0.0.1", "producer_byte_rate=1"], "cannot be combined"),
        (["set", "--ip", "example.org", "connection_creation_rate=1"], "is no IP address"),
        (["set", "--user", "a", "retention.ms=1"], "is no quota of user a"),
        (["set", "--ip", "10.0.0.1", "producer_byte_rate=1"], "connection_creation_rate"),
        (["set", "--user", "a", "producer_byte_rate=fast"], "has to be a number"),
        (["set", "--user", "a", "producer_byte_rate=-1"], "above 0"),
        (["set", "--user", "a", "producer_byte_rate=1.5"], "whole number"),
        (["set", "--user", "a"], "KEY=VALUE"),
        (["show"], "whose?"),
        (["show", "--user", "a", "--ip", "10.0.0.1"], "not both"),
        (["list", "--ip", "nowhere"], "is no IP address"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_said_before_anything_is_asked(arguments: list[str], problem: str) -> None:
    done = forebay("quota", *arguments, bootstrap="127.0.0.1:1")
    assert done.code == 2 and problem in done.err, done.err
