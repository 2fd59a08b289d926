"""Random clients on a host whose workers are killed again and again, and sometimes all of it at once.

`make test` kills a few workers under load. `make chaos` has everybody act, and goes on for CHAOS_SECONDS with
four and with eight workers; see `test_chaos.py` for seeds.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from support.brokers.host_process import HostProcess, running_host
from support.brokers.replicated import until
from support.chaos.actors import Stage
from support.chaos.cast import PARTITIONS, TOPICS, breaches_of, enough_was_done, play
from support.chaos.history import History
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin
from support.clients.load import Load, read_all

CHAOS_SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))
CHAOS_SEED = os.environ.get("CHAOS_SEED") or f"{random.SystemRandom().randrange(2**32)}"
READY_SECONDS = 300.0
SETTINGS = ("group.consumer.session.timeout.ms=2000", "group.consumer.heartbeat.interval.ms=200")
REPLICAS = {
    "one replica": ("default.replication.factor=1",),
    "two replicas": ("default.replication.factor=2", "min.insync.replicas=2"),
}


def all_serve(host: HostProcess) -> bool:
    """True if every worker is there, and every partition has a leader and all its replicas."""
    try:
        found = confluent_admin(host.bootstrap).list_topics(timeout=5)
    except KafkaException:
        return False
    parts = [part for topic in found.topics.values() for part in topic.partitions.values()]
    return len(found.brokers) == host.workers and all(
        part.leader in found.brokers and len(part.isrs) == len(part.replicas) for part in parts
    )


def wait_until_all_serve(host: HostProcess) -> None:
    until(lambda: all_serve(host), "all workers serve again", seconds=READY_SECONDS)


def kill_some(host: HostProcess, chance: random.Random) -> None:
    """One worker, two at once, or everything."""
    fate = chance.random()
    if fate < 0.15:
        host.kill_all()
        host.start()
    else:
        alive = sorted(host.worker_pids())
        for number in chance.sample(alive, min(len(alive), 1 if fate < 0.75 else 2)):
            host.kill_worker(number)
    time.sleep(chance.uniform(0, 1.0))


def torment(host: HostProcess, chance: random.Random, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.3, 2.0))
        kill_some(host, chance)
        if chance.random() < 0.7:
            wait_until_all_serve(host)
    wait_until_all_serve(host)


def create(host: HostProcess, topic: str) -> None:
    """With as many replicas as the host's settings say."""
    new = NewTopic(topic, PARTITIONS, replication_factor=-1)
    admin = confluent_admin(host.bootstrap)
    admin.create_topics([new])[topic].result(DEADLINE_SECONDS)


def prepare(host: HostProcess, seed: str, **pace: float) -> Stage:
    for topic in TOPICS:
        create(host, topic)
    return Stage(host.bootstrap, History(), seed, **pace)


def judge(host: HostProcess, history: History, seed: str) -> None:
    breaches = breaches_of(history)
    shown = "\n".join(breaches[:20])
    assert not breaches, f"seed {seed}: {len(breaches)} breaches\n{shown}\n{host.log()[-4_000:]}"
    assert "Traceback" not in host.log(), host.log()[-4_000:]
    assert enough_was_done(history), "too little was done to prove anything"


@pytest.mark.parametrize("replicas", REPLICAS.values(), ids=REPLICAS)
def test_nothing_acknowledged_is_lost_while_workers_are_killed(
    tmp_path: Path, replicas: tuple[str, ...]
) -> None:
    """One worker after the other under load, then the parent and all of them at once."""
    with running_host(tmp_path / "data", 2, *replicas) as host:
        create(host, "t")
        load = Load(host.bootstrap, "t", partitions=PARTITIONS, idempotent=True, acks="all", pace_s=0.02)
        with load:
            load.wait_for_more(20)
            for number in (1, 2):
                host.kill_worker(number)
                load.wait_for_more(20)
            host.kill_all()
            host.start()
            load.wait_for_more(20)
        wait_until_all_serve(host)
        assert load.failed == []
        for partition in range(PARTITIONS):
            found = read_all(host.bootstrap, "t", partition)
            told = {at: value for (number, at), value in load.acknowledged.items() if number == partition}
            assert told == {offset: found.get(offset) for offset in told}
            assert list(found.values()) == load.sent[partition]
        assert "Traceback" not in host.log()


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("replicas", REPLICAS.values(), ids=REPLICAS)
@pytest.mark.parametrize("workers", [4, 8])
def test_nothing_breaks_for_long(tmp_path: Path, workers: int, replicas: tuple[str, ...]) -> None:
    with running_host(tmp_path / "data", workers, *SETTINGS, *replicas) as host:
        stage = prepare(host, CHAOS_SEED)
        chance = random.Random(CHAOS_SEED)
        judge(host, play(stage, lambda: torment(host, chance, CHAOS_SECONDS)), CHAOS_SEED)
