"""Consumers of one KIP-848 group that end one after the other: the first is closed, the others are dropped.

Run as a script: it may wait for ever in librdkafka, where no signal handler of Python runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer

from support.import_path import import_path

MEMBERS = 4
HEARTBEATS_S = 1.0
"""How long the others go on without being polled, which is time for several heartbeats."""
_DEADLINE_S = 120.0


def drop_consumers(servers: str, group: str, topic: str) -> None:
    """Raises if the child process does not end."""
    subprocess.run(
        [sys.executable, __file__, servers, group, topic],
        env={"PYTHONPATH": import_path(), "PATH": str(Path(sys.executable).parent)},
        timeout=_DEADLINE_S,
        check=True,
    )


def _consumer(servers: str, group: str, topic: str) -> Consumer:
    settings = {"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer"}
    consumer = Consumer(settings)
    consumer.subscribe([topic], on_assign=lambda *_: None)
    return consumer


def _main(servers: str, group: str, topic: str) -> None:
    consumers = [_consumer(servers, group, topic) for _ in range(MEMBERS)]
    give_up_at = time.monotonic() + _DEADLINE_S
    while not all([each.poll(0.05) or each.assignment() for each in consumers]):  # noqa: C419
        assert time.monotonic() < give_up_at, "not everybody has partitions"
    consumers.pop().close()
    time.sleep(HEARTBEATS_S)
    while consumers:
        del consumers[0]


if __name__ == "__main__":
    _main(*sys.argv[1:])
