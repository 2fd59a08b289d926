"""`forebay work` with real processes: what each message's command sees, and what its exit code does."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.cli.work.environment import VALUE_BYTES_MAX, message_variables
from forebay.client import Admin, Queue, QueueMessage
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import Done, command, environment, forebay, forebay_process

IDLE = ("--timeout", "6")
"""It counts from the start, and a busy machine takes its time to join a group."""
WAIT_SECONDS = 60


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


@pytest.fixture
def queue(bootstrap: str, topic: str) -> Iterator[Queue]:
    Admin(bootstrap).create_topic(topic, partitions=1)
    with Queue(bootstrap, topic, group=topic) as queue:
        yield queue


def work(queue: Queue, bootstrap: str, *arguments: str) -> Done:
    return forebay_process("work", queue.topic, "-g", queue.topic, *arguments, bootstrap=bootstrap)


def python(code: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code)


def left(queue: Queue, count: int = 0) -> list[bytes | None]:
    """The ones that must be left, and what comes beside them."""
    found = []
    for _ in range(count):
        with queue.receive(WAIT_SECONDS) as message:
            found.append(message.value)
    return found + [message.value for message in queue.messages(1.0)]


def test_exit_codes_decide(queue: Queue, bootstrap: str) -> None:
    for value in ("0", "65", "3"):
        queue.send(value)
    queue.flush()
    code = (
        "import os, sys; code = int(sys.stdin.read());"
        " sys.exit(code if os.environ['FOREBAY_DELIVERY_COUNT'] == '1' else 0)"
    )
    done = work(queue, bootstrap, *IDLE, *python(code))
    assert done.code == 0
    assert f"handled 4 messages of {queue.topic}: 2 accepted, 1 rejected, 1 released" in done.err
    assert f"{queue.topic}/0 offset 2 is released: delivery 1 ended with exit code 3" in done.err
    assert f"{queue.topic}/0 offset 1 is rejected: the command ended with exit code 65" in done.err
    assert "Preview" not in done.err
    assert left(queue) == []


def test_a_command_sees_its_message(queue: Queue, bootstrap: str) -> None:
    queue.send(
        "körper\n", key="a key", headers=[("content-type", "text"), ("content-type", "html"), ("n", None)]
    )
    queue.flush()
    code = (
        "import json, os, sys; print(json.dumps([sys.stdin.buffer.read().decode(),"
        " {k: v for k, v in os.environ.items() if k.startswith('FOREBAY_')}]))"
    )
    done = work(queue, bootstrap, *IDLE, *python(code))
    value, variables = json.loads(done.out)
    assert value == "körper\n"
    timestamp = variables.pop("FOREBAY_TIMESTAMP_MS")
    assert abs(int(timestamp) - time.time() * 1000) < 600_000
    headers = json.loads(variables.pop("FOREBAY_HEADERS"))
    assert headers == [
        {"name": "content-type", "value": "text"},
        {"name": "content-type", "value": "html"},
        {"name": "n", "value": None},
    ]
    assert variables == {
        "FOREBAY_BOOTSTRAP_SERVERS": bootstrap,
        "FOREBAY_TOPIC": queue.topic,
        "FOREBAY_PARTITION": "0",
        "FOREBAY_OFFSET": "0",
        "FOREBAY_GROUP": queue.topic,
        "FOREBAY_DELIVERY_COUNT": "1",
        "FOREBAY_KEY": "a key",
        "FOREBAY_KEY_BASE64": "YSBrZXk=",
        "FOREBAY_HEADER_CONTENT_TYPE": "html",
    }


def test_what_no_variable_can_hold_is_left_out() -> None:
    headers = (("long", b"x" * (VALUE_BYTES_MAX + 1)), ("nul", b"a\0b"))
    message = QueueMessage(topic="t", partition=0, offset=1, timestamp_ms=2, key=b"\0", headers=headers)
    variables = message_variables(message, "g")
    assert variables["FOREBAY_KEY_BASE64"] == "AA=="
    assert variables["FOREBAY_NULL_VALUE"] == "1"
    absent = {"FOREBAY_KEY", "FOREBAY_HEADER_LONG", "FOREBAY_HEADER_NUL", "FOREBAY_HEADERS"}
    assert not absent & variables.keys()


def test_a_command_that_reads_nothing(queue: Queue, bootstrap: str) -> None:
    queue.send("x" * 500_000)  # more than a pipe holds
    queue.flush()
    done = work(queue, bootstrap, *IDLE, "--", "true")
    assert "1 accepted" in done.err


@contextlib.contextmanager
def running(queue: Queue, bootstrap: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    line = command("work", queue.topic, "-g", queue.topic, *arguments)
    process = subprocess.Popen(
        line, env=environment(bootstrap), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


WAITING = """
import os, pathlib, time
os.write(1, b'begun\\n')  # in one piece, also beside the others
while not pathlib.Path({!r}).exists():
    time.sleep(0.01)
"""


def test_sigterm_waits_for_commands_and_releases_the_rest(
    queue: Queue, bootstrap: str, tmp_path: Path
) -> None:
    for number in range(5):
        queue.send(str(number))
    queue.flush()
    go = tmp_path / "go"
    with running(queue, bootstrap, "--jobs", "2", *python(WAITING.format(str(go)))) as process:
        assert process.stdout is not None and process.stderr is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["begun\n", "begun\n"]
        process.send_signal(signal.SIGTERM)
        assert "stopping when the commands that run have ended" in process.stderr.readline()
        go.touch()
        assert "handled 2 messages" in (last := process.stderr.readline()) and "2 accepted" in last
        assert process.wait(WAIT_SECONDS) == 0
    assert sorted(left(queue, 3), key=str) == [b"2", b"3", b"4"]


def test_a_second_signal_ends_the_commands(queue: Queue, bootstrap: str, tmp_path: Path) -> None:
    queue.send("0")
    queue.flush()
    with running(queue, bootstrap, *python(WAITING.format(str(tmp_path / "never")))) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            line = process.stderr.readline()
        assert "is released: delivery 1 ended with SIGTERM" in line
        assert "1 released" in process.stderr.readline()
        assert process.wait(WAIT_SECONDS) == 0
    assert left(queue, 1) == [b"0"]


def test_settings_of_the_group(queue: Queue, bootstrap: str) -> None:
    options = ("--lock", "2", "--delivery-limit", "3", "--retry-backoff", "0.25", "--start", "latest")
    assert work(queue, bootstrap, *options, "--timeout", "0", "--", "true").code == 0
    config = Admin(bootstrap).group_config(queue.topic)
    names = ("share.record.lock.duration.ms", "share.delivery.count.limit", "forebay.share.retry.backoff.ms")
    assert [config[name] for name in names] == ["2000", "3", "250"]
    assert config["share.auto.offset.reset"] == "latest"


def test_mistakes_say_what_to_do(queue: Queue, bootstrap: str) -> None:
    missing = forebay("work", queue.topic, "-g", "g", "--", "no-such-command", bootstrap=bootstrap)
    assert missing.code == 1
    assert "there is no command no-such-command" in missing.err
    nowhere = forebay("work", "nowhere", "-g", "g", "--", "true", bootstrap=bootstrap)
    assert nowhere.code == 1
    assert "forebay topic create nowhere" in nowhere.err
    assert forebay("work", queue.topic, "--", "true", bootstrap=bootstrap).code == 2
    assert forebay("work", queue.topic, "-g", "g", bootstrap=bootstrap).code == 2
    refused = forebay("work", queue.topic, "-g", "g", "--lock", "0.1", "--", "true", bootstrap=bootstrap)
    assert refused.code == 1
    assert "share.record.lock.duration.ms" in refused.err


def test_a_command_that_cannot_be_run_ends_the_work(queue: Queue, bootstrap: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    queue.send("0")
    queue.flush()
    done = work(queue, bootstrap, "--", str(broken))
    assert done.code == 1
    assert f"cannot run {broken}" in done.err
    assert left(queue, 1) == [b"0"]
