"""Three topics, dedupe, a join of streams, a join with a table, windows and two sinks, while kill -9 takes
drivers, executors, Python workers and brokers: what comes out is what plain Python makes of the same.

SPARK_STORY_SEED chooses the moments and the victims, SPARK_STORY_KILLS how many there are in `make chaos`.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from forebay.testing import Cluster
from support.brokers.broker_process import BrokerProcess
from support.spark import story_driver
from support.spark.kill_story import PAID, TOTALS, Story, found
from support.spark.processes import executors, is_running, kill_9, kill_all_of, workers
from support.waiting import Patience

SEED = os.environ.get("SPARK_STORY_SEED", "13")
LONG_KILLS = int(os.environ.get("SPARK_STORY_KILLS", "12"))
DEADLINE_S = 300.0
BATCHES_BETWEEN_KILLS = 2
"""Of both streams together."""

Kill = Callable[["Play"], None]


@dataclass
class Play:
    """The story while it runs: a driver that is started again whenever it has ended before the end."""

    story: Story
    bootstrap: str
    folder: Path
    master: str
    jvm_options: str
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    driver: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def run(self, kills: list[tuple[str, Kill]]) -> None:
        self.story.tell(self.bootstrap)
        try:
            self.start()
            for name, kill in kills:
                self.wait_for_batches(BATCHES_BETWEEN_KILLS)
                time.sleep(self.chance.uniform(0, 0.7))  # somewhere in a batch
                assert self.is_unfinished(), f"the story was over before the kill of a {name}"
                kill(self)
            self.to_the_end()
        finally:
            if self.driver is not None:
                kill_all_of(self.driver)

    def start(self) -> None:
        self.starts += 1
        command = [sys.executable, story_driver.__file__, self.master, self.bootstrap]
        command += [str(self.folder / "checkpoints"), self.jvm_options]
        environment = {**os.environ, "SPARK_WORKER_DIR": str(self.folder / "work")}
        environment["PYTHONPATH"] = str(Path(story_driver.__file__).parents[2])
        with self.log.open("wb") as log:
            self.driver = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    @property
    def log(self) -> Path:
        return self.folder / f"driver-{self.starts}.log"

    @property
    def pid(self) -> int:
        assert self.driver is not None
        return self.driver.pid

    def is_unfinished(self) -> bool:
        """A driver that has failed is started again, which is what operators do."""
        assert self.driver is not None
        if is_running(self.driver):
            return True
        if self.driver.returncode == 0:
            return False
        self.start()
        return True

    def wait_for_batches(self, count: int) -> None:
        before, patience = self._batches(), Patience(f"{count} batches", DEADLINE_S)
        while self._batches() < before + count and self.is_unfinished():
            patience.check(self._last_words())
            time.sleep(0.05)

    def _batches(self) -> int:
        return sum(1 for _ in (self.folder / "checkpoints").glob("*/commits/[0-9]*"))

    def to_the_end(self) -> None:
        patience = Patience("the story comes to its end", DEADLINE_S)
        while self.is_unfinished():
            patience.check(self._last_words())
            time.sleep(0.05)

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    # -- kills ------------------------------------------------------------------------------------------

    def kill_driver(self) -> None:
        assert self.driver is not None
        kill_all_of(self.driver)
        self.start()

    def kill_worker(self) -> None:
        self._kill_one_of(workers)

    def kill_executor(self) -> None:
        self._kill_one_of(executors)

    def _kill_one_of(self, victims_of: Callable[[int], list[int]]) -> None:
        patience = Patience("something to kill", DEADLINE_S)
        while not (victims := victims_of(self.pid)) and self.is_unfinished():
            patience.check(self._last_words())
            time.sleep(0.02)
        assert victims, self._last_words()
        kill_9(self.chance.choice(victims))


def check(bootstrap: str, story: Story) -> None:
    for topic, wanted in ((PAID, story.paid()), (TOTALS, story.totals())):
        assert len(wanted) > story.orders // 20
        patience = Patience(f"all rows of {topic} are there")
        # What is decided becomes visible soon after.
        while len(seen := found(bootstrap, topic)) < len(wanted):
            patience.check([row for row in wanted if row not in seen])
            time.sleep(0.2)
        wrong = [row for row in seen if row not in wanted]
        missing = [row for row in wanted if row not in seen]
        assert (wrong, missing, len(seen)) == ([], [], len(wanted)), topic


@pytest.mark.chaos  # a minute; make test kills drivers and workers of a smaller query, and brokers
def test_a_driver_a_worker_and_a_broker_are_killed(
    fresh_broker: BrokerProcess, tmp_path: Path, jvm_options: str
) -> None:
    def kill_broker(_play: Play) -> None:
        fresh_broker.kill()
        fresh_broker.restart()

    # A task that dies is tried again, as on a cluster.
    play = Play(Story(seed=13, orders=300), fresh_broker.bootstrap, tmp_path, "local[2,4]", jvm_options)
    kills = [("worker", Play.kill_worker), ("broker", kill_broker), ("driver", Play.kill_driver)]
    play.chance.shuffle(kills)
    play.run(kills)
    check(fresh_broker.bootstrap, play.story)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"forebay.lease.ttl.ms": 6_000}) as running:
        yield running


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_everything_is_killed_again_and_again(cluster: Cluster, tmp_path: Path, jvm_options: str) -> None:
    """Two executors in processes of their own, three brokers."""

    def kill_broker(play: Play) -> None:
        victim = play.chance.choice(cluster.node_ids)
        cluster.kill(victim)
        time.sleep(play.chance.uniform(0, 3))
        cluster.start(victim)
        cluster.wait_until_ready()

    orders = 60 * BATCHES_BETWEEN_KILLS * LONG_KILLS
    story = Story(seed=int(SEED), orders=orders)
    play = Play(story, cluster.bootstrap_servers, tmp_path, "local-cluster[2,1,512]", jvm_options)
    ways: list[tuple[str, Kill]] = [
        ("driver", Play.kill_driver),
        ("executor", Play.kill_executor),
        ("worker", Play.kill_worker),
        ("broker", kill_broker),
    ]
    kills = [ways[n % len(ways)] for n in range(LONG_KILLS)]
    play.chance.shuffle(kills)
    with contextlib.ExitStack() as stack:
        stack.callback(_say, play)
        play.run(kills)
    check(cluster.bootstrap_servers, story)


def _say(play: Play) -> None:
    sys.stderr.write(f"{play.starts} starts of the driver\n")
