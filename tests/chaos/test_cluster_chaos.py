"""Random clients on a cluster of three brokers and three etcd servers to which everything happens.

`make chaos` runs it for CHAOS_SECONDS with a seed of its own each time, and prints what was done and what it
cost; CHAOS_SEED repeats the choices of a run, though not its timing. `make test` runs a short story of the
faults that have most to tell.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from support.chaos.actors import Stage
from support.chaos.cast import PARTITIONS, TOPICS, breaches_of, enough_was_done, play
from support.chaos.chaos_cluster import BROKERS, ChaosCluster, chaos_cluster
from support.chaos.cluster_faults import FAULTS, Fault
from support.chaos.evidence import numbered_batches
from support.chaos.history import History
from support.chaos.outages import Outages, show
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin

CHAOS_SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))
CHAOS_SEED = os.environ.get("CHAOS_SEED") or f"{random.SystemRandom().randrange(2**32)}"
SHORT_STORY = {"killed": 0.2, "cut from all but clients": 7.5, "etcd leader killed": 0.5, "stopped": 0.1}
"""Fault and seconds."""
SHORT_STORY_PAUSE_S_MAX = 0.3
"""Producers that rest a little leave the cores to others, who run their tests at the same time."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChaosCluster]:
    with chaos_cluster(tmp_path) as running:
        admin = confluent_admin(running.bootstrap_servers)
        new = [NewTopic(topic, PARTITIONS, replication_factor=BROKERS) for topic in TOPICS]
        for done in admin.create_topics(new).values():
            done.result(DEADLINE_SECONDS)
        yield running


class Tormentor:
    def __init__(self, cluster: ChaosCluster, chance: random.Random, outages: Outages) -> None:
        self._cluster, self._chance, self._outages = cluster, chance, outages

    def tell(self, story: dict[str, float]) -> None:
        """These faults, one after the other."""
        by_name = {fault.name: fault for fault in FAULTS}
        for name, seconds in story.items():
            with self._outages.during(name):
                with by_name[name].strike(self._cluster, self._chance):
                    time.sleep(seconds)
                self._cluster.wait_until_healthy()

    def go_on(self, seconds: float) -> None:
        """Whatever chance brings, for so long; in the end all is well again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self._chance.uniform(0.2, 2.0))
            self._strike(self._chance.choice(self._possible()))
        self._cluster.wait_until_healthy()

    def _possible(self) -> list[Fault]:
        return [fault for fault in FAULTS if self._cluster.small_disks or not fault.needs_small_disk]

    def _strike(self, fault: Fault) -> None:
        if fault.alone:
            self._cluster.wait_until_healthy()
        with contextlib.ExitStack() as ended, contextlib.ExitStack() as mended:
            for each in (fault, *self._companion(fault)):
                if not self._cluster.well:
                    break  # the first one has struck them all
                ended.enter_context(self._outages.during(each.name))
                mended.enter_context(each.strike(self._cluster, self._chance))
                time.sleep(self._chance.uniform(*each.seconds))
            mended.close()
            # Sometimes the next one comes before the cluster has recovered from this one.
            if fault.alone or self._chance.random() < 0.7:
                self._cluster.wait_until_healthy()

    def _companion(self, fault: Fault) -> list[Fault]:
        if fault.alone or self._chance.random() > 0.25:
            return []
        others = [each for each in FAULTS if not each.restarts and not each.alone and each is not fault]
        return [self._chance.choice(others)]


def judge(cluster: ChaosCluster, history: History, seed: str) -> None:
    breaches = breaches_of(history)
    shown = "\n".join(breaches[:20])
    assert not breaches, (
        f"seed {seed}: {len(breaches)} breaches\n{shown}\n{_logs(cluster, 10_000)}\n{_batches(cluster)}"
    )
    assert "Traceback" not in _logs(cluster), _logs(cluster, 4_000)
    assert enough_was_done(history), "too little was done to prove anything"


def _logs(cluster: ChaosCluster, end_chars: int = 1 << 30) -> str:
    return "\n".join(f"broker {node}:\n{cluster.log(node)[-end_chars:]}" for node in cluster.node_ids)


def _batches(cluster: ChaosCluster) -> str:
    of_each = {node: numbered_batches(cluster.broker_data_dir(node)) for node in cluster.node_ids}
    return "\n".join(f"broker {node}: {line}" for node, lines in of_each.items() for line in lines)


def test_nothing_breaks_in_a_cluster(cluster: ChaosCluster) -> None:
    stage = Stage(cluster.bootstrap_servers, History(), "a", SHORT_STORY_PAUSE_S_MAX)
    with Outages(stage.history) as outages:
        tormentor = Tormentor(cluster, random.Random("a"), outages)
        judge(cluster, play(stage, lambda: tormentor.tell(SHORT_STORY)), "a")


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_nothing_breaks_in_a_cluster_for_long(
    cluster: ChaosCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(cluster.bootstrap_servers, History(), CHAOS_SEED)
    with Outages(stage.history) as outages:
        tormentor = Tormentor(cluster, random.Random(CHAOS_SEED), outages)
        play(stage, lambda: tormentor.go_on(CHAOS_SECONDS))
    with capsys.disabled():
        small = "" if cluster.small_disks else "; no disk was filled, for none could be mounted"
        show(outages, stage.history, f"{CHAOS_SECONDS:.0f} s of faults, seed {CHAOS_SEED}{small}")
    judge(cluster, stage.history, CHAOS_SEED)
