"""A small shop with a web console to look at it: `make demo ARGS="--console"`, until Ctrl-C."""

from __future__ import annotations

import json
import random
import threading
from contextlib import ExitStack

from demo_stage import console
from forebay.client import Admin, Consumer, Producer
from forebay.local.child_console import ChildConsole
from forebay.testing import Broker

PORT = 8080
TOPICS = {"orders": 6, "payments": 3, "clicks": 4}
READERS = {"billing": ("orders", 0.0), "shipping": ("orders", 0.03), "analytics": ("clicks", 0.0)}
"""The topic that each group reads, and its pause after a message: one of them is too slow."""
_PAUSE_S = 0.01


def show() -> None:
    """Returns when it is interrupted, by KeyboardInterrupt."""
    stopping = threading.Event()
    with Broker(process=True) as broker, ExitStack() as ending:
        with Admin(broker.bootstrap_servers) as admin:
            for topic, partitions in TOPICS.items():
                admin.create_topic(topic, partitions=partitions)
        workers = [threading.Thread(target=_sell, args=(broker.bootstrap_servers, stopping))]
        workers += [
            threading.Thread(target=_read, args=(broker.bootstrap_servers, group, topic, pause_s, stopping))
            for group, (topic, pause_s) in READERS.items()
        ]
        for worker in workers:
            worker.start()
            ending.callback(worker.join)
        ending.callback(stopping.set)
        shown = ChildConsole()
        ending.callback(shown.stop)
        shown.start(broker.client_settings, port=PORT, on_line=_tell)
        while not stopping.wait(1.0):
            pass


def _tell(line: str) -> None:
    console.print(f"\n[bold]{line}[/]\nA small shop is at work there; Ctrl-C ends it.", soft_wrap=True)


def _sell(bootstrap: str, stopping: threading.Event) -> None:
    with Producer(bootstrap) as producer:
        number = 0
        while not stopping.wait(_PAUSE_S):
            number += 1
            order = {"id": number, "amount": round(random.uniform(1, 200), 2), "currency": "EUR"}
            producer.send("orders", json.dumps(order), key=f"customer-{number % 50}")
            producer.send("clicks", f"GET /shop/{number % 90} 200")
            if number % 3 == 0:
                producer.send("payments", json.dumps({"order": number, "paid": True}), key=str(number))


def _read(bootstrap: str, group: str, topic: str, pause_s: float, stopping: threading.Event) -> None:
    with Consumer(bootstrap, topic, group=group) as consumer:
        while not stopping.is_set():
            consumer.poll(0.2)
            stopping.wait(pause_s)
