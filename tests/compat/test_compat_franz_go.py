"""franz-go, the third client that knows share groups, on a Forebay broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.client import Admin, Producer
from forebay.testing import Broker
from support.brokers.forebay_command import forebay
from support.brokers.replicated import until
from support.go import franz_go

pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]

PARTITIONS = 2
MESSAGES = 20
ALL_JOBS = sorted(f"job {number}" for number in range(MESSAGES))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    if reason := franz_go.why_not():
        pytest.skip(reason)
    with Broker(process=True) as running:
        yield running.bootstrap_servers


@pytest.fixture
def jobs(bootstrap: str, topic: str) -> str:
    """A topic with messages in it, and a share group of the same name that begins with the first of them."""
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.create_topic(topic, partitions=PARTITIONS)
        admin.set_group_config(
            topic,
            {
                "share.auto.offset.reset": "earliest",
                "share.record.lock.duration.ms": "2000",
                "errors.deadletterqueue.topic.name": f"{topic}-dead",
            },
        )
        for number in range(MESSAGES):
            producer.send(topic, f"job {number}", partition=number % PARTITIONS)
    return topic


@pytest.mark.parametrize(
    ("verdict", "deliveries"), [("accept", 1), ("release", 2), ("renew", 1), ("reject", 1)]
)
def test_messages_are_acknowledged_in_every_way(
    bootstrap: str, jobs: str, verdict: str, deliveries: int
) -> None:
    """Renewed locks hold for longer than the two seconds that a lock lasts: nothing comes again."""
    got = sorted(
        (each["value"], each["delivery"])
        for each in franz_go.consume(bootstrap, jobs, jobs, MESSAGES, verdict)
    )
    assert got == [(job, delivery) for job in ALL_JOBS for delivery in range(1, deliveries + 1)]
    until(lambda: start_offsets(bootstrap, jobs) == [MESSAGES // PARTITIONS] * PARTITIONS, "all are finished")
    with Admin(bootstrap) as admin:
        letters = admin.end_offsets(f"{jobs}-dead") if f"{jobs}-dead" in admin.topics() else {}
    assert sum(letters.values()) == (MESSAGES if verdict == "reject" else 0)


def start_offsets(bootstrap: str, group: str) -> list[int]:
    described = forebay("share", "describe", group, "--json", bootstrap=bootstrap).json()
    return [each["start_offset"] for each in described["partitions"]]
