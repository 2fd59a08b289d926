"""The tiers chapter: a topic whose disk holds a little, and whose history holds all."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from demo_stage import Broker, Facts, Failed, step, until, waiting
from demo_worker import QUIET
from forebay.client import Admin, Consumer, Producer

ORDERS = "orders"
MESSAGES = 20_000
VALUE_BYTES = 500
SEGMENT_BYTES = 1 << 20
LOCAL_BYTES = 2 << 20


def play(_short: bool) -> Facts:
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        history = Path(directory) / "history"
        broker = Broker(
            Path(directory) / "data",
            f"forebay.remote.url={history}",
            "remote.log.manager.task.interval.ms=500",
        )
        try:
            broker.start()
            step(f"started a broker on {broker.address} whose old segments go to a directory")
            return _play(broker, history)
        finally:
            broker.end(signal.SIGKILL)


def _play(broker: Broker, history: Path) -> Facts:
    settings = {
        "remote.storage.enable": "true",
        "segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": str(LOCAL_BYTES),
        "file.delete.delay.ms": "0",
    }
    Admin(broker.address, settings=QUIET).create_topic(ORDERS, partitions=1, config=settings)
    with Producer(broker.address, settings=QUIET) as producer:
        for number in range(MESSAGES):
            producer.send(ORDERS, f"{number} {secrets.token_hex(VALUE_BYTES // 2)}")
    step(f"sent {MESSAGES:,} orders, {MESSAGES * VALUE_BYTES >> 20} MiB")
    with waiting("waiting until old segments have left the disk"):
        until(lambda: _local_bytes(broker) <= LOCAL_BYTES + 2 * SEGMENT_BYTES, "the disk holds little")
    start = _partition(broker)["local_start_offset"]
    held, objects = _local_bytes(broker), list(history.rglob("*.segment"))
    if not start or not objects:
        raise Failed("nothing has left the disk")
    step(f"the disk holds {held >> 10} KiB, from offset {start} on; the rest is in {len(objects)} objects")
    broker.end(signal.SIGKILL)
    started = broker.start()
    step(f"killed the broker (kill -9), and started it again in {started:.2f} s")
    _read_all(broker)
    step("a consumer has read everything from the beginning: none lost, none doubled")
    _check_store(history)
    return [
        (
            f"{MESSAGES:,} messages",
            f"{held >> 10} KiB of them on the disk, {len(objects)} objects in the store",
        ),
        ("read from the beginning after kill -9", "all of them, in order"),
        ("forebay remote check --deep", "nothing missing, no orphans"),
    ]


def _local_bytes(broker: Broker) -> int:
    return sum(file.stat().st_size for file in broker.data.glob(f"{ORDERS}-0/*.log"))


def _partition(broker: Broker) -> dict[str, Any]:
    described = _forebay("topic", "describe", ORDERS, "--json", "-b", broker.address)
    part: dict[str, Any] = described["partitions"][0]
    return part


def _read_all(broker: Broker) -> None:
    found: list[int] = []
    with Consumer(broker.address, ORDERS, group="historians", settings=QUIET) as consumer:

        def look() -> bool:
            found.extend(int((message.value or b"").split()[0]) for message in consumer.take(5000, 0.5))
            return len(found) >= MESSAGES

        with waiting("reading the history"):
            until(look, "the whole history is read")
        found.extend(int((message.value or b"").split()[0]) for message in consumer.take(10, 0.5))
    if found != list(range(MESSAGES)):
        raise Failed(f"{len(found)} messages came instead of {MESSAGES}, or in another order")


def _check_store(history: Path) -> None:
    report = _forebay("remote", "check", str(history), "--deep", "--min-age", "0ms", "--json")
    if report["orphans"] or report["problems"]:
        raise Failed(f"the store is not in order: {report}")
    step("`forebay remote check --deep` finds every object in order")


def _forebay(*arguments: str) -> Any:
    command = [sys.executable, "-m", "forebay", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr.strip() or done.stdout.strip())
    return json.loads(done.stdout)
