"""Alerts that are delivered later, unless what they wait for has happened; and values that are no orders.

    python examples/alerts.py                  # with a broker of its own
    python examples/alerts.py -b HOST:PORT     # with yours

`alerts.yml` writes an alert for every order that is placed, to be delivered 15 minutes after that, and takes
it back when the order is paid.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from forebay.client import Admin, Consumer
from forebay.testing import Broker

HERE = Path(__file__).parent
MINUTE_MS = 60_000
EVENTS = (
    ("forgotten", "placed", 20, 80.0),
    ("paid", "placed", 5, 120.0),
    ("open", "placed", 5, 45.5),
    ("paid", "paid", 1, 120.0),
)
"""Order, event, how many minutes ago, amount."""
UNREADABLE = "40 pairs of socks"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("-b", "--bootstrap-server", help="a running broker; without it, one is started")
    given = arguments.parse_args()
    with broker(given.bootstrap_server) as bootstrap, tempfile.TemporaryDirectory() as folder:
        make_topics(bootstrap)
        send(bootstrap)
        run_pipeline(bootstrap, Path(folder))
        show(bootstrap)


@contextlib.contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with Broker(process=True) as started:
        yield started.bootstrap_servers


def make_topics(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("orders", partitions=2, exist_ok=True)
        admin.create_topic("alerts", partitions=1, config={"forebay.delay.enable": "true"}, exist_ok=True)
        admin.create_topic("orders-unreadable", partitions=1, exist_ok=True)


def send(bootstrap: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": bootstrap})
    for order, event, minutes_ago, amount in EVENTS:
        value = json.dumps({"id": order, "event": event, "amount": amount})
        producer.produce("orders", value, order, timestamp=now_ms - minutes_ago * MINUTE_MS)
    producer.produce("orders", UNREADABLE)
    producer.flush()


def run_pipeline(bootstrap: str, folder: Path) -> None:
    command = [sys.executable, "-m", "forebay", "pipeline", "run", str(HERE / "alerts.yml")]
    subprocess.run([*command, "-b", bootstrap], cwd=folder, check=True)


def show(bootstrap: str) -> None:
    """What was delivered, what waits, and what was put aside."""
    (alert,) = (json.loads(value) for value in values_of(bootstrap, "alerts"))
    print(f"delivered: {alert}")
    assert alert["order"] == "forgotten"
    waiting = [one["key"] for one in json.loads(forebay(bootstrap, "delay", "list", "alerts"))["messages"]]
    print(f"waiting: {waiting}")
    assert waiting == ["open"], "the alert of what was paid was taken back"
    (letter,) = values_of(bootstrap, "orders-unreadable")
    print(f"put aside: {letter.decode()}")
    assert letter.decode() == UNREADABLE


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    """What is there: one message at least, and others if there are any."""
    with Consumer(bootstrap, topic, group=f"reader of {topic}") as consumer:
        found: list[bytes] = []
        while (message := consumer.poll(2.0 if found else 60.0)) is not None:
            found.append(message.value or b"")
        return found


def forebay(bootstrap: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "forebay", *arguments, "--json", "-b", bootstrap]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
