"""kill -9 of a driver at random moments, 20 times, over an archive, a query and a query with state.

`make chaos` runs it: SPARK_DRIVER_KILLS says how often, SPARK_DRIVER_MINUTES after which time there is no
further kill (on a machine with other work a start of Spark takes minutes), SPARK_DRIVER_SEED chooses the
moments. One command
runs all three pipelines, each with its dead letters, while messages keep coming. In the end no row is
missing, none is there twice, and none is wrong.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from forebay.spark.pipelines.archiving.compact import archive_files
from forebay.spark.pipelines.archiving.layout import require_position
from forebay.spark.pipelines.lake import Lake
from forebay.spark.session import QUICK_OPTIONS
from support.brokers.broker_process import BrokerProcess
from support.spark.archives import seen_in
from support.spark.driver_story import DriverStory
from support.spark.pipeline_process import kill, running
from support.spark.schema_registry import SchemaRegistry, running_registry
from support.waiting import Patience

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]

CHANCE = random.Random(os.environ.get("SPARK_DRIVER_SEED", "13"))
KILLS = int(os.environ.get("SPARK_DRIVER_KILLS", "20"))
MINUTES = float(os.environ.get("SPARK_DRIVER_MINUTES", "90"))
CHANGES_MAX = 30
"""Of the files of the archive and of the checkpoints, before a kill."""
DEADLINE_S = 600.0


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as started:
        yield started


def test_a_driver_is_killed_again_and_again(
    fresh_broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path
) -> None:
    bootstrap = fresh_broker.bootstrap
    story = DriverStory(bootstrap, registry.address, tmp_path)
    story.write_steps(tmp_path / "steps.yml", every="1s")
    feeding = threading.Thread(target=story.feed, name="feeding")
    feeding.start()
    no_more_s = time.monotonic() + MINUTES * 60
    kills = 0
    try:
        while kills < KILLS and (not kills or time.monotonic() < no_more_s):
            with start(bootstrap, tmp_path) as process:
                wait_for_changes(tmp_path, CHANCE.randint(1, CHANGES_MAX), process)
                time.sleep(CHANCE.uniform(0, 0.7))
                kill(process)
            kills += 1
            sys.stderr.write(f"kill {kills} after {story.sent} messages\n")
    finally:
        story.stop_feeding()
        feeding.join()
    to_the_end(story, bootstrap, tmp_path)
    lake = Lake(str(tmp_path / "lake"))
    assert seen_in(lake, archive_files(lake, require_position(lake))) == story.offsets()
    wanted, found = story.wanted(), story.found()
    for topic, rows in wanted.items():
        assert found[topic] == rows, topic
    sys.stderr.write(f"{kills} kills of {KILLS}, {story.sent} messages: 0 wrong\n")


def to_the_end(story: DriverStory, bootstrap: str, folder: Path) -> None:
    """Twice: what the first message of a later time closes is written in the batch after it."""
    story.write_steps(folder / "steps.yml", once=True)
    for _ in range(2):
        story.close_windows()
        with start(bootstrap, folder) as process:
            process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, told(folder)


def start(bootstrap: str, folder: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    return running("run", "steps.yml", bootstrap=bootstrap, cwd=folder, jvm_options=QUICK_OPTIONS)


def wait_for_changes(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    patience = Patience(f"{count} changes of the files", DEADLINE_S)
    before = files_in(folder)
    while count:
        assert process.poll() is None, told(folder)
        patience.check(told(folder))
        time.sleep(0.01)
        now = files_in(folder)
        count -= now != before
        before = now


def files_in(folder: Path) -> set[str]:
    """Of the archive and of the checkpoints, all of them."""
    places = (folder / "lake", folder / "checkpoints")
    return {f"{at}/{name}" for place in places for at, _, names in os.walk(place) for name in names}


def told(folder: Path) -> str:
    return (folder / "stderr").read_text()[-3000:]
