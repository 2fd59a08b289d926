"""Programs that end without closing their consumers."""

from __future__ import annotations

from support.brokers.broker_process import StartBroker
from support.clients.dropped_consumers import MEMBERS, drop_consumers
from support.clients.kafka_clients import create_topic

RUNS = 3


def test_consumers_that_are_dropped_while_another_leaves_do_not_hang(start_broker: StartBroker) -> None:
    """librdkafka does, if the partitions of the one that has left are given to them at once."""
    broker = start_broker(
        "group.consumer.heartbeat.interval.ms=100", "group.consumer.assignment.interval.ms=15000"
    )
    create_topic(broker.bootstrap, "work", MEMBERS)
    for run in range(RUNS):
        drop_consumers(broker.bootstrap, f"group-{run}", "work")
