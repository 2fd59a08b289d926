"""The first chapter: one broker, real clients, and a kill -9 in the middle of it all."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from demo_groups import INVOICES, demo_group, demo_transfer
from demo_load import Load, Read, check, read_all
from demo_stage import (
    CUSTOMERS,
    PARTITIONS,
    PATIENCE_SECONDS,
    TOPIC,
    Broker,
    Facts,
    Failed,
    console,
    step,
    table,
)

MESSAGES = 10_000
SOON = 0.1
"""The share of messages that is acknowledged when the broker is killed."""


def play(_short: bool) -> Facts:
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        broker = Broker(Path(directory) / "data")
        try:
            return _play(broker)
        finally:
            broker.end(signal.SIGKILL)


def _play(broker: Broker) -> Facts:
    started = broker.start()
    step(f"started a broker in {started:.2f} s on {broker.address}")
    load = _produce(broker)
    _kill(broker, load)
    demo_group(broker.address, load.sent)
    demo_transfer(broker, load.sent)
    check(read_all(broker.address, INVOICES), load.sent, has_markers=True)
    step(f"consumed {load.sent:,} invoices: none lost, none doubled")
    code = broker.end(signal.SIGTERM)
    if code != 0:
        raise Failed(f"the broker ended with code {code} after SIGTERM")
    step("stopped it cleanly")
    return [
        ("a broker starts", f"{started:.2f} s"),
        ("kill -9 under load", f"{load.sent:,} orders: none lost, none doubled, all in order"),
        ("a group of three, one leaves", "every order was read"),
        ("kill -9 inside a transaction", f"{load.sent:,} invoices: exactly one for each order"),
    ]


def _produce(broker: Broker) -> Load:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(PATIENCE_SECONDS)
    step(f"created topic {TOPIC} with {PARTITIONS} partitions")
    load = Load(broker.address)
    begun = time.perf_counter()
    load.send(MESSAGES)
    load.finish()
    rate = MESSAGES / (time.perf_counter() - begun)
    step(f"produced {MESSAGES:,} messages with keys, zstd, acks=all: {rate:,.0f} a second")
    read = read_all(broker.address)
    check(read, MESSAGES)
    step(f"consumed them: {MESSAGES / read.seconds:,.0f} a second, {CUSTOMERS} keys, each in order")
    return load


def _kill(broker: Broker, load: Load) -> None:
    """The broker dies while messages are under way; the producer only notices that it takes longer."""
    load.send(MESSAGES)
    load.wait_for(MESSAGES + int(MESSAGES * SOON))
    broker.end(signal.SIGKILL)
    acknowledged = len(load.acknowledged) - MESSAGES
    step(f"produced {MESSAGES:,} more, and killed the broker (kill -9) after {acknowledged:,} acknowledges")
    step(f"started it again in {broker.start():.2f} s; the producer goes on by itself")
    load.finish()
    read = read_all(broker.address)
    check(read, load.sent)
    step(f"consumed everything: {load.sent:,} messages, none lost, none doubled, all in order")
    _show_partitions(broker, read)


def _show_partitions(broker: Broker, read: Read) -> None:
    shown = table("partition", "messages", "first offset", "last offset", "bytes stored")
    for number, offsets in read.by_partition.items():
        cells = (number, len(offsets), offsets[0], offsets[-1], broker.bytes_on_disk(number))
        shown.add_row(*(f"{cell:,}" for cell in cells))
    console.print(shown)
