"""A queue of 100,000 messages, eight workers that are killed and come back, and leaders that are too.

`make chaos` runs it; CHAOS_SEED repeats the choices of a run, though not its timing.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.client import Admin, Producer
from forebay.testing import Cluster
from support.brokers.forebay_command import forebay
from support.brokers.replicated import until
from support.chaos.share_workers import LOCK_SECONDS, Crew, Outcome

CHAOS_SEED = os.environ.get("CHAOS_SEED") or f"{random.SystemRandom().randrange(2**32)}"
TOPIC = GROUP = "jobs"
DEAD_LETTERS = "jobs-dead"
PARTITIONS = 4
MESSAGES = 100_000
WORKERS = 8
LEASE_SECONDS = 6.0
LEADER_DIES_AT = (0.15, 0.45)
"""When so much is done."""
CALM_AT = 0.8
"""From here on nobody is killed: else a message could be held by ten workers that die."""
PATIENCE_SECONDS = 300.0
SETTINGS = {
    "forebay.lease.ttl.ms": int(LEASE_SECONDS * 1000),
    "offsets.topic.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    # A group must not wait for dead members longer than the story lasts.
    "group.share.session.timeout.ms": 5_000,
    "group.share.heartbeat.interval.ms": 500,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as running:
        with Admin(running.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
            admin.set_group_config(
                GROUP,
                {
                    "share.auto.offset.reset": "earliest",
                    "share.record.lock.duration.ms": f"{LOCK_SECONDS * 1000:.0f}",
                    "share.delivery.count.limit": "10",
                    "forebay.share.record.limit.enable": "true",
                    "errors.deadletterqueue.topic.name": DEAD_LETTERS,
                },
            )
        yield running


class Story:
    def __init__(self, cluster: Cluster, crew: Crew, chance: random.Random) -> None:
        self._cluster, self._crew, self._chance = cluster, crew, chance
        self._give_up = time.monotonic() + PATIENCE_SECONDS

    def tell(self) -> None:
        for share in LEADER_DIES_AT:
            self._kill_workers_until(lambda share=share: self._done() >= share)  # type: ignore[misc]
            leader = self._cluster.leader(TOPIC, self._chance.randrange(PARTITIONS))
            self._cluster.kill(leader)
            back = time.monotonic() + LEASE_SECONDS + self._chance.uniform(0.0, 4.0)
            self._kill_workers_until(lambda back=back: time.monotonic() > back)  # type: ignore[misc]
            self._cluster.start(leader)
            self._cluster.wait_until_ready()
        self._kill_workers_until(lambda: self._done() >= CALM_AT)
        until(self._nothing_is_left, "all messages are finished", seconds=PATIENCE_SECONDS)
        self._crew.stop()

    def _kill_workers_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            assert time.monotonic() < self._give_up, f"{self._done():.0%} are done"
            time.sleep(self._chance.uniform(0.1, 0.8))
            self._crew.replace_one(self._chance)

    def _done(self) -> float:
        return len(self._crew.outcome().accepted) / MESSAGES

    def _nothing_is_left(self) -> bool:
        self._crew.check()
        done = forebay("share", "describe", GROUP, "--json", bootstrap=self._cluster.bootstrap_servers)
        partitions = done.json()["partitions"] if done.code == 0 else []
        finished = sum(each["start_offset"] or 0 for each in partitions)
        return finished == MESSAGES and not any(each["lag"] for each in partitions)


def judge(outcome: Outcome) -> None:
    twice = sorted(number for number, times in outcome.accepted.items() if times > 1)
    assert not twice, f"{len(twice)} were accepted more than once: {twice[:20]}"
    lost = sorted({*range(MESSAGES)} - outcome.accepted.keys() - outcome.unknown.keys())
    assert not lost, f"{len(lost)} are finished, and nobody has accepted them: {lost[:20]}"
    assert len(outcome.accepted) > 0.9 * MESSAGES, "of too many nobody knows whether they were accepted"


@pytest.mark.chaos
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_each_message_is_accepted_once_though_workers_and_leaders_die(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = cluster.bootstrap_servers
    with Producer(servers) as producer:
        for number in range(MESSAGES):
            producer.send(TOPIC, str(number))
    started = time.monotonic()
    with Crew(servers, GROUP, TOPIC, tmp_path, workers=WORKERS) as crew:
        Story(cluster, crew, random.Random(CHAOS_SEED)).tell()
        outcome, lives = crew.outcome(), crew.lives
    with capsys.disabled():
        unknown = len(outcome.unknown.keys() - outcome.accepted.keys())
        sys.stdout.write(
            f"\n{MESSAGES:,} messages, {lives} lives of {WORKERS} workers, {len(LEADER_DIES_AT)} dead "
            f"leaders, seed {CHAOS_SEED}: {len(outcome.accepted):,} confirmed, "
            f"{unknown:,} of which nobody knows, {time.monotonic() - started:.0f} s\n"
        )
    judge(outcome)
    with Admin(servers) as admin:
        assert DEAD_LETTERS not in admin.topics()
    for node in cluster.node_ids:
        assert "Traceback" not in cluster.log(node), cluster.log(node)[-4_000:]
