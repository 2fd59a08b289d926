"""A broker does the same where the system lacks what Linux has: each thing taken away alone, then all.

What is taken away is missing in child processes, which choose by what they find (`support/other_systems`).
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from forebay.clock import _clock_of
from forebay.testing import Broker
from support.other_systems import MISSING, environment

pytestmark = pytest.mark.spread

TESTS = Path(__file__).parents[1]
COUNT = 100
ROUND_TRIP = "clients/test_round_trip.py::test_every_client_reads_what_every_client_wrote"
CORE = {
    "storage": ["storage/test_disk.py", "storage/test_datadir.py", "storage/test_recovery.py"],
    "sockets": ["broker/net/test_sockets.py", "broker/tls/test_tls_stream.py"],
    "brokers for tests": ["testing/test_testing_broker.py"],
    "a cluster of three": ["testing/test_testing_cluster.py"],
    "kill -9": ["clients/test_crash.py::test_nothing_acknowledged_is_lost_by_kill_9"],
    "TLS": ["clients/test_tls_clients.py"],
    "clients": [
        f"{ROUND_TRIP}[confluent-aiokafka-zstd]",
        f"{ROUND_TRIP}[aiokafka-kafka-python-none]",
        f"{ROUND_TRIP}[kafka-python-confluent-none]",
    ],
}
"""The tests that say most about what differs from system to system."""
IN_COMPAT = ("brokers for tests", "a cluster of three", "TLS", "kill -9")
"""`make compat` runs them: they take long."""


@pytest.mark.parametrize("missing", MISSING)
def test_messages_survive_a_kill_without(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in environment([missing]).items():
        monkeypatch.setenv(name, text)
    values = [bytes([number]) * 10_000 for number in range(COUNT)]
    with Broker(process=True, settings={"forebay.flush.policy": "ack"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
        for value in values:
            producer.produce("kept", value, partition=0)
        assert producer.flush(60) == 0
        del producer
        broker.kill()
        broker.restart()
        assert read(broker, "kept") == values


def read(broker: Broker, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while len(found) < COUNT:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize(
    "tests",
    [
        pytest.param(tests, id=name, marks=[pytest.mark.compat] if name in IN_COMPAT else [])
        for name, tests in CORE.items()
    ],
)
def test_the_most_important_tests_pass_without_any_of_it(tests: list[str]) -> None:
    chosen = [str(TESTS / each) for each in tests]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen],
        cwd=TESTS.parent,
        env=environment(MISSING),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-10_000:]


def test_what_is_taken_away_is_missing() -> None:
    asked = (
        "import os, select, selectors, socket, time\n"
        "print([name for module in (os, select, socket, time) for name in ('sendfile', 'fdatasync', 'waitid',"
        " 'pwritev', 'memfd_create', 'epoll', 'MSG_MORE', 'CLOCK_BOOTTIME') if hasattr(module, name)])\n"
        "print(selectors.DefaultSelector.__name__)\n"
        "from forebay.broker.net import sockets\n"
        "from forebay.storage import system_calls\n"
        "print(sockets._HAS_SENDFILE, system_calls.sync_data.__name__, system_calls.write_vector.__name__)"
    )
    told = subprocess.run(
        [sys.executable, "-c", asked], env=environment(MISSING), capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == ["[]", "PollSelector", "False _flush_drive _write_joined"]


def test_the_clock_of_macos_is_the_one_that_goes_on_while_it_sleeps() -> None:
    """Its name is that of a clock which stands still on Linux."""
    assert _clock_of("linux") == time.CLOCK_BOOTTIME
    assert _clock_of("darwin") == time.CLOCK_MONOTONIC_RAW
