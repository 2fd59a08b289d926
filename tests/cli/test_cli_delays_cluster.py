"""`forebay delay` where several brokers lead: each is asked for its own partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.client import Consumer, Producer, Record
from forebay.testing import Cluster
from support.brokers.forebay_command import Done, forebay

PARTITIONS = 4
HOUR_S = 3600
TOPIC = "reminders"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        settings = ("--partitions", str(PARTITIONS), "--config", "forebay.delay.enable=true")
        made = forebay("topic", "create", TOPIC, *settings, bootstrap=running.bootstrap_servers)
        assert made.code == 0, made.err
        yield running


def delay(cluster: Cluster, *arguments: str) -> Done:
    """By way of one broker only."""
    done = forebay("delay", *arguments, bootstrap=cluster.address(1))
    assert done.code == 0, done.err
    return done


def test_messages_of_every_leader_are_listed_fired_and_cancelled(cluster: Cluster) -> None:
    ids = []
    with Producer(cluster.bootstrap_servers, profile="latency") as producer:
        for number in range(2 * PARTITIONS):
            record = Record(
                topic=TOPIC,
                value=str(number),
                partition=number % PARTITIONS,
                deliver_after=(number + 1) * HOUR_S,
            )
            ids.append(producer.send_and_wait(record).schedule_id)
    listed = delay(cluster, "list", TOPIC, "--json").json()
    assert (listed["pending"], [each["id"] for each in listed["messages"]]) == (len(ids), ids)
    assert delay(cluster, "show", TOPIC, ids[3], "--json").json()["value"] == "3"

    assert delay(cluster, "fire", TOPIC, *ids[:PARTITIONS]).out.startswith(f"fired {PARTITIONS} messages")
    with Consumer(cluster.bootstrap_servers, TOPIC, group="callers", profile="latency") as consumer:
        assert {next(consumer).value for _ in range(PARTITIONS)} == {
            b"%d" % number for number in range(PARTITIONS)
        }
    assert delay(cluster, "cancel", TOPIC, "--all", "--yes").out.startswith(
        f"cancelled {PARTITIONS} messages"
    )
    assert delay(cluster, "list", TOPIC, "--json").json() == {"pending": 0, "messages": []}
