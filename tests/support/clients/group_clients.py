"""Members of a group with each of three real clients, each member a process that can be killed.

A member prints in JSON what it has read (generations, partitions, offsets), and then commits what it has
printed; again when that fails, for perhaps no message comes any more after which it would. It runs until its
standard input is closed, which lets it leave the group as a program should; or until it is killed, which does
not.

    python -m support.clients.group_clients CLIENT BOOTSTRAP GROUP TOPIC SETTINGS_AS_JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

MEMBERS = ("confluent", "kafka-python", "aiokafka")
SESSION_MS = 4_000
BATCH = 500
_TESTS = Path(__file__).parents[2]


class Seen(NamedTuple):
    member: str
    generation: int
    partition: int
    offset: int


class MemberProcess:
    """One member: started at once, heard by a thread."""

    def __init__(
        self, name: str, client: str, bootstrap: str, group: str, topic: str, **settings: Any
    ) -> None:
        self.name = name
        self.seen: list[Seen] = []
        """What it has read, in the order it read it; a kill may take away the end of it."""
        self._child = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, client, bootstrap, group, topic, json.dumps(settings)],
            cwd=_TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with os.fdopen(os.dup(self._child.stdout.fileno()), "rb") as lines:
            for line in lines:
                if line.endswith(b"]\n"):  # not a line that was cut short by a kill
                    self.seen += [Seen(self.name, *each) for each in json.loads(line)]

    def leave(self) -> None:
        """It says goodbye, and has committed what it has read."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._end()
        assert self._child.returncode == 0, self._errors

    def kill(self) -> None:
        self._child.kill()
        self._end()

    def _end(self) -> None:
        assert self._child.stderr is not None and self._child.stdout is not None
        self._errors = self._child.stderr.read().decode(errors="replace")
        self._child.wait(30)
        self._listener.join()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None


def told_to_leave() -> bool:
    """Whether standard input is closed."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def tell(read: Iterable[tuple[int, int, int]]) -> None:
    """Generation, partition and offset, before it is committed: so what is committed is known to be read."""
    os.write(1, json.dumps(list(read)).encode() + b"\n")


def run_confluent(bootstrap: str, group: str, topic: str, settings: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    from support.chaos.membership import generation_of

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "fetch.wait.max.ms": 50,
            **({} if settings.get("group.protocol") == "consumer" else {"session.timeout.ms": SESSION_MS}),
            **settings,
        }
    )
    passing = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError.UNKNOWN_TOPIC_OR_PART)
    consumer.subscribe([topic])
    pending = False
    while pending or not told_to_leave():
        read: list[tuple[int, int, int]] = []
        # One by one: each poll may bring another generation.
        while len(read) < BATCH and (message := consumer.poll(0 if read else 0.1)) is not None:
            error = message.error()
            if error is None:
                read.append((generation_of(consumer), message.partition() or 0, message.offset() or 0))
            assert error is None or error.code() in passing, error
        if read:
            tell(read)
            pending = True
        if pending:
            try:
                consumer.commit(asynchronous=False)
                pending = False
            except KafkaException as failure:
                # When the partitions have gone to another member, that one reads it again.
                pending = failure.args[0].code() != KafkaError._NO_OFFSET
    consumer.close()


def run_kafka_python(bootstrap: str, group: str, topic: str, settings: dict[str, Any]) -> None:
    from kafka.errors import KafkaError

    from support.clients.kafka_clients import kafka_python

    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=200,
        **settings,
    )
    consumer.subscribe(**({"pattern": topic} if topic.startswith("^") else {"topics": [topic]}))
    pending = False
    while pending or not told_to_leave():
        # A poll that ends while the group rebalances can lose the result: 3.0.12 then never reads again.
        polled = consumer.poll(timeout_ms=2_000)
        if polled:
            generation = consumer._coordinator._generation.generation_id
            tell((generation, each.partition, each.offset) for many in polled.values() for each in many)
            pending = True
        if pending:
            with contextlib.suppress(KafkaError):
                consumer.commit()
                pending = False
    consumer.close(autocommit=False)


def run_aiokafka(bootstrap: str, group: str, topic: str, settings: dict[str, Any]) -> None:
    asyncio.run(_run_aiokafka(bootstrap, group, topic, settings))


async def _run_aiokafka(bootstrap: str, group: str, topic: str, settings: dict[str, Any]) -> None:
    import aiokafka
    from aiokafka.errors import KafkaError

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=200,
        **settings,
    )
    consumer.subscribe(**({"pattern": topic} if topic.startswith("^") else {"topics": [topic]}))
    await consumer.start()
    pending = False
    while pending or not told_to_leave():
        polled = await consumer.getmany(timeout_ms=100)
        if polled:
            generation = consumer._coordinator.generation
            tell((generation, each.partition, each.offset) for many in polled.values() for each in many)
            pending = True
        if pending:
            with contextlib.suppress(KafkaError):
                await consumer.commit()
                pending = False
    await consumer.stop()


RUN = {"confluent": run_confluent, "kafka-python": run_kafka_python, "aiokafka": run_aiokafka}


if __name__ == "__main__":
    client_, bootstrap_, group_, topic_, settings_ = sys.argv[1:]
    RUN[client_](bootstrap_, group_, topic_, json.loads(settings_))
