"""Apache Kafka's own tools for share groups on a Forebay broker: the Java share consumer, the admin client.

Each tool is a JVM of its own, which takes seconds to start. So a test says a whole story.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forebay.client import Admin, Consumer, Message, Producer
from forebay.testing import Broker
from support.java import kafka_tools
from support.java.kafka_tools import Done

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

CONSOLE = "consumer.ConsoleShareConsumer"
VERIFIABLE = "VerifiableShareConsumer"
GROUP_COMMAND = "consumer.group.ShareGroupCommand"
PARTITIONS = 2
MESSAGES = 20
WAIT = 60.0
"""For what must come: long, because the machine may be busy."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    if reason := kafka_tools.why_not():
        pytest.skip(reason)
    with Broker(process=True) as running:
        yield running.bootstrap_servers


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as made:
        yield made


@pytest.fixture
def jobs(bootstrap: str, admin: Admin, topic: str) -> str:
    """A topic with messages in it, and a share group of the same name that begins with the first of them."""
    admin.create_topic(topic, partitions=PARTITIONS)
    admin.set_group_config(topic, {"share.auto.offset.reset": "earliest"})
    with Producer(bootstrap) as producer:
        for number in range(MESSAGES):
            producer.send(topic, f"job {number}", partition=number % PARTITIONS)
    return topic


ALL_JOBS = sorted(f"job {number}" for number in range(MESSAGES))


def consume(bootstrap: str, jobs: str, *options: str) -> Done:
    """With Kafka's console share consumer, in the group of the same name."""
    shown = ("--formatter-property", "print.delivery=true")
    done = kafka_tools.run(CONSOLE, bootstrap, "--topic", jobs, "--group", jobs, *shown, *options)
    assert done.code == 0, done.errors
    return done


def deliveries(done: Done) -> list[tuple[str, int]]:
    """What the console share consumer has printed: messages, and which delivery of each it was."""
    split = (line.split("\t") for line in done.lines)
    return sorted((value, int(delivery.removeprefix("Delivery:"))) for delivery, value in split)


def group_command(bootstrap: str, *arguments: str) -> Done:
    return kafka_tools.run(GROUP_COMMAND, bootstrap, *arguments)


def start_offsets(bootstrap: str, group: str) -> list[tuple[int, int, int]]:
    """Of each partition of the group: its number, the start offset and the lag."""
    done = group_command(bootstrap, "--describe", "--group", group, "--offsets")
    return sorted((int(row["PARTITION"]), int(row["START-OFFSET"]), int(row["LAG"])) for row in done.rows())


HALF = MESSAGES // PARTITIONS
AT_THE_END = [(partition, HALF, 0) for partition in range(PARTITIONS)]
AT_THE_BEGINNING = [(partition, 0, HALF) for partition in range(PARTITIONS)]


# -- consumers ---------------------------------------------------------------------------------------------


def test_the_console_share_consumer_accepts_what_it_prints(bootstrap: str, jobs: str) -> None:
    done = consume(bootstrap, jobs, "--max-messages", str(MESSAGES))
    assert deliveries(done) == [(job, 1) for job in ALL_JOBS]
    assert start_offsets(bootstrap, jobs) == AT_THE_END


def test_what_it_rejects_becomes_dead_letters(bootstrap: str, admin: Admin, jobs: str) -> None:
    set_dead_letter_topic(admin, jobs)
    consume(bootstrap, jobs, "--reject", "--max-messages", str(MESSAGES))
    letters = read(bootstrap, f"{jobs}-dead", MESSAGES)
    assert sorted((letter.value or b"").decode() for letter in letters) == ALL_JOBS
    assert {letter.header("__dlq.errors.delivery.count") for letter in letters} == {b"1"}


def test_what_it_releases_comes_again_until_the_limit(bootstrap: str, admin: Admin, jobs: str) -> None:
    set_dead_letter_topic(admin, jobs)
    admin.set_group_config(jobs, {"share.delivery.count.limit": "3"})
    done = consume(bootstrap, jobs, "--release", "--max-messages", str(3 * MESSAGES))
    assert deliveries(done) == [(job, delivery) for job in ALL_JOBS for delivery in (1, 2, 3)]
    letters = read(bootstrap, f"{jobs}-dead", MESSAGES)
    assert sorted((letter.value or b"").decode() for letter in letters) == ALL_JOBS
    assert {letter.header("__dlq.errors.delivery.count") for letter in letters} == {b"3"}


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_the_verifiable_share_consumer_has_all_acknowledged(bootstrap: str, jobs: str, mode: str) -> None:
    done = kafka_tools.run(
        VERIFIABLE,
        bootstrap,
        *("--topic", jobs, "--group-id", jobs, "--max-messages", str(MESSAGES)),
        *("--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest"),
    )
    assert done.code == 0, done.errors
    events = [json.loads(line) for line in done.lines]
    assert counted(events, "records_consumed") == MESSAGES
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged)
    assert counted(events, "offsets_acknowledged") == MESSAGES
    assert start_offsets(bootstrap, jobs) == AT_THE_END


def counted(events: list[dict[str, Any]], name: str) -> int:
    return sum(event["count"] for event in events if event["name"] == name)


def set_dead_letter_topic(admin: Admin, group: str) -> None:
    admin.set_group_config(
        group,
        {
            "errors.deadletterqueue.topic.name": f"{group}-dead",
            "errors.deadletterqueue.copy.record.enable": "true",
        },
    )


def read(bootstrap: str, topic: str, count: int) -> list[Message]:
    """That many messages, and whatever comes with the last of them."""
    found: list[Message] = []
    deadline = time.monotonic() + WAIT
    with Consumer(bootstrap, topic, group=f"reader of {topic}") as consumer:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} messages came"
            found += consumer.take(timeout_s=1.0)
    return found


# -- administration ----------------------------------------------------------------------------------------


def test_a_group_is_listed_described_and_deleted(bootstrap: str, jobs: str) -> None:
    with running_member(bootstrap, jobs):
        wait_until(lambda: start_offsets(bootstrap, jobs) == AT_THE_END, "the member accepts all messages")
        listed = group_command(bootstrap, "--list", "--state").rows()
        assert {"GROUP": jobs, "STATE": "Stable"} in listed
        [member] = group_command(bootstrap, "--describe", "--group", jobs, "--members").rows()
        assert member["GROUP"] == jobs
        assert member["#PARTITIONS"] == str(PARTITIONS)
        refused = group_command(bootstrap, "--delete", "--group", jobs)
        assert "GroupNotEmptyException" in refused.out + refused.errors
        refused = group_command(
            bootstrap, "--reset-offsets", "--group", jobs, "--all-topics", "--to-earliest", "--execute"
        )
        assert "is not empty" in refused.out + refused.errors
    deleted = group_command(bootstrap, "--delete", "--group", jobs)
    assert "was successful" in deleted.out
    assert jobs not in group_command(bootstrap, "--list").lines
    gone = group_command(bootstrap, "--describe", "--group", jobs)
    assert f"Group {jobs} not found." in gone.out + gone.errors


def test_offsets_are_reset_and_deleted(bootstrap: str, jobs: str) -> None:
    consume(bootstrap, jobs, "--max-messages", str(MESSAGES))
    reset = ("--reset-offsets", "--group", jobs, "--all-topics", "--to-earliest")
    assert {row["NEW-OFFSET"] for row in group_command(bootstrap, *reset, "--dry-run").rows()} == {"0"}
    assert start_offsets(bootstrap, jobs) == AT_THE_END
    assert {row["NEW-OFFSET"] for row in group_command(bootstrap, *reset, "--execute").rows()} == {"0"}
    assert start_offsets(bootstrap, jobs) == AT_THE_BEGINNING
    again = consume(bootstrap, jobs, "--max-messages", str(MESSAGES))
    assert deliveries(again) == [(job, 1) for job in ALL_JOBS]
    deleted = group_command(bootstrap, "--delete-offsets", "--group", jobs, "--topic", jobs)
    assert "Successful" in deleted.out
    described = group_command(bootstrap, "--describe", "--group", jobs)
    assert "has no offset information" in described.out


@contextlib.contextmanager
def running_member(bootstrap: str, jobs: str) -> Iterator[None]:
    """A console share consumer that goes on until the end of the block, and then leaves its group."""
    command = kafka_tools.command(CONSOLE, bootstrap, "--topic", jobs, "--group", jobs)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as member:
        try:
            yield
        finally:
            member.terminate()
            member.wait(WAIT)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline, f"{what}: it did not happen in time"


# -- records -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic_of_records", "formatter"),
    [
        ("__share_group_state", "consumer.group.share.ShareGroupStateMessageFormatter"),
        ("__consumer_offsets", "consumer.ShareGroupMessageFormatter"),
    ],
)
def test_kafka_can_read_our_records(bootstrap: str, jobs: str, topic_of_records: str, formatter: str) -> None:
    consume(bootstrap, jobs, "--max-messages", str(MESSAGES))
    done = kafka_tools.run(
        "consumer.ConsoleConsumer",
        bootstrap,
        *("--topic", topic_of_records, "--from-beginning", "--timeout-ms", "10000"),
        *("--formatter", f"{kafka_tools.PACKAGE}.{formatter}"),
    )
    records = list(decoded(done.out))
    ours = [record for record in records if record["key"]["data"].get("groupId") == jobs]
    assert ours, done.errors
    if topic_of_records == "__share_group_state":
        ends = {record["key"]["data"]["partition"]: record["value"]["data"]["startOffset"] for record in ours}
        assert ends == dict.fromkeys(range(PARTITIONS), HALF)


def decoded(text: str) -> Iterator[dict[str, Any]]:
    """The formatters put nothing between one record and the next."""
    decoder = json.JSONDecoder()
    text = text.strip()
    while text:
        record, end = decoder.raw_decode(text)
        yield record
        text = text[end:].lstrip()
