"""The delays chapter: a message for later, another in its place, one cancelled, and kill -9 meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from demo_stage import Broker, Facts, Failed, console, step, table, until, waiting
from demo_worker import QUIET
from forebay.client import Admin, Consumer, Message, Producer, Record

REMINDERS = "reminders"
HOUR = timedelta(hours=1)
SECONDS_AHEAD = 3


def play(_short: bool) -> Facts:
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        broker = Broker(Path(directory) / "data")
        try:
            started = broker.start()
            step(f"started a broker in {started:.2f} s on {broker.address}")
            return _play(broker)
        finally:
            broker.end(signal.SIGKILL)


def _play(broker: Broker) -> Facts:
    address = broker.address
    Admin(address, settings=QUIET).create_topic(
        REMINDERS, partitions=1, config={"forebay.delay.enable": "true"}
    )
    with Producer(address, profile="latency", settings=QUIET) as producer:
        _schedule(producer, address)
        due = datetime.now(UTC) + timedelta(seconds=SECONDS_AHEAD)
        sent = producer.send_and_wait(
            Record(
                topic=REMINDERS, key="ada", value="call Ada, now!", schedule_key="call Ada", deliver_at=due
            )
        )
    step(f"sent another under the schedule key of the first: call Ada in {SECONDS_AHEAD} s instead")
    broker.end(signal.SIGKILL)
    started = broker.start()
    step(f"killed the broker (kill -9), and started it again in {started:.2f} s")
    found, late_s = _receive(address, due)
    _check(found, sent.schedule_id)
    until(lambda: not _waiting(address), "nothing waits any more")
    step("exactly one message came, and nothing waits any more: none lost, none doubled, none early")
    return [
        (f"a message {SECONDS_AHEAD} s ahead", f"came {late_s * 1000:.0f} ms after its time"),
        ("the one before it, under the same key", "replaced, and never seen"),
        ("one that was cancelled", "never seen"),
        ("kill -9 while it waited", f"started again in {started:.2f} s, delivered once"),
    ]


def _schedule(producer: Producer, address: str) -> None:
    producer.send(REMINDERS, "call Ada", key="ada", schedule_key="call Ada", deliver_after=HOUR)
    bob = producer.send_and_wait(Record(topic=REMINDERS, key="bob", value="call Bob", deliver_after=2 * HOUR))
    until(lambda: len(_waiting(address)) == 2, "two messages wait")
    step("sent two messages for later; `forebay delay list reminders` shows them")
    shown = table("id", "due", "key", words=3)
    for each in _waiting(address):
        shown.add_row(each["id"], each["due"], each["key"])
    console.print(shown)
    producer.cancel(REMINDERS, schedule_id=bob.schedule_id)
    step(f"cancelled the second, {bob.schedule_id}")


def _receive(address: str, due: datetime) -> tuple[list[Message], float]:
    """What comes, and how late the first was."""
    with Consumer(address, REMINDERS, group="callers", profile="latency", settings=QUIET) as consumer:
        found: list[Message] = []

        def look() -> bool:
            found.extend(consumer.take(1, 0.05))
            return bool(found)

        with waiting("waiting for the message"):
            until(look, "the message comes when it is due")
        late_s = (datetime.now(UTC) - due).total_seconds()
        found.extend(consumer.take(10, 1.0))
    if late_s < 0:
        raise Failed(f"the message came {-late_s:.3f} s early")
    text = (found[0].value or b"").decode()
    step(f"{text!r} came {late_s * 1000:.0f} ms after its time")
    return found, late_s


def _check(found: list[Message], schedule_id: str) -> None:
    values = [(message.value or b"").decode() for message in found]
    if values != ["call Ada, now!"]:
        raise Failed(f"these came: {values}")
    if found[0].header("forebay-schedule-id") != schedule_id.encode():
        raise Failed(f"what came is not {schedule_id}")


def _waiting(address: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "forebay", "delay", "list", REMINDERS, "--json", "-b", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr.strip())
    messages: list[dict[str, Any]] = json.loads(done.stdout)["messages"]
    return messages
