"""kill -9 of whole pipelines at random moments: archives as files and as tables, their compaction, a replay.

The same command is started again and again, killed each time after some change of the archive's directory,
and then left alone. SPARK_PIPELINE_SEED chooses the moments, SPARK_PIPELINE_KILLS how many for each command.
What a crash after any single step leaves behind is in the tests of the single pipelines.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from forebay.spark.pipelines.archiving.compact import archive_files
from forebay.spark.pipelines.archiving.layout import require_position
from forebay.spark.pipelines.lake import Lake
from support.brokers.broker_process import BrokerProcess
from support.spark.archives import seen_in
from support.spark.pipeline_process import kill, running
from support.spark.topics import NINE_MS, Sent, contents, make, send
from support.waiting import Patience

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

CHANCE = random.Random(os.environ.get("SPARK_PIPELINE_SEED", "13"))
KILLS = int(os.environ.get("SPARK_PIPELINE_KILLS", "3"))
MESSAGES = 600
CHANGES_MAX = 12
DEADLINE_S = 300.0
HOUR_MS = 3_600_000


def messages() -> list[Sent]:
    """Of three hours, so that there are three merges."""
    return [Sent(b"%d" % n, b"k%d" % (n % 7), n % 2, NINE_MS + n % 3 * HOUR_MS + n) for n in range(MESSAGES)]


@pytest.mark.parametrize("form", ["parquet", "delta", "iceberg"])
def test_each_message_is_archived_merged_and_replayed_once(
    broker: BrokerProcess, tmp_path: Path, jvm_options: str, form: str
) -> None:
    topic, again = f"killed-{form}", f"killed-{form}-again"
    make(broker.bootstrap, **{topic: 2, again: 2})
    send(broker.bootstrap, topic, messages())
    story = Story(broker.bootstrap, tmp_path, jvm_options)

    story.run("archive", topic, "--to", "lake", "--format", form, "--once", "--batch-records", "60")
    sent = contents(broker.bootstrap, topic)
    assert story.archived() == [(one.partition, one.offset) for one in sent]
    story.run("compact", "lake")
    assert story.archived() == [(one.partition, one.offset) for one in sent]
    story.run("replay", "lake", "--to", again, "--rate", "200")
    replayed = contents(broker.bootstrap, again)
    assert [(one.partition, one.content) for one in replayed] == [
        (one.partition, one.content) for one in sent
    ]


class Story:
    def __init__(self, bootstrap: str, folder: Path, jvm_options: str) -> None:
        self._bootstrap, self._folder, self._jvm_options = bootstrap, folder, jvm_options
        self._lake = folder / "lake"

    def run(self, *arguments: str) -> None:
        """Killed some times, then to its end."""
        for _ in range(KILLS):
            with self._running(*arguments) as process:
                self._wait_for_changes(CHANCE.randint(1, CHANGES_MAX), process)
                time.sleep(CHANCE.uniform(0, 0.3))
                if process.poll() is not None:
                    assert process.returncode == 0, self._told()
                    return  # it was faster
                kill(process)
                if self._is_forgotten(arguments):
                    return  # it was at its end, and only left to go
        with self._running(*arguments) as process:
            process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, self._told()

    def _is_forgotten(self, arguments: tuple[str, ...]) -> bool:
        """Whether a replay has removed its checkpoint, which is the last thing that it does."""
        kept = self._lake / "_forebay" / "replays"
        return (
            arguments[0] == "replay"
            and kept.exists()
            and all(".removed" in each.name for each in kept.iterdir())
        )

    def archived(self) -> list[tuple[int, int]]:
        """Partition and offset of what our readers find."""
        lake = Lake(str(self._lake))
        return seen_in(lake, archive_files(lake, require_position(lake)))

    def _running(self, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
        return running(*arguments, bootstrap=self._bootstrap, cwd=self._folder, jvm_options=self._jvm_options)

    def _wait_for_changes(self, count: int, process: subprocess.Popen[str]) -> None:
        patience = Patience(f"{count} changes of the archive", DEADLINE_S)
        before = self._files()
        while count and process.poll() is None:
            patience.check(self._told())
            time.sleep(0.01)
            now = self._files()
            count -= now != before
            before = now

    def _files(self) -> set[str]:
        return {entry for _, folders, files in os.walk(self._lake) for entry in (*folders, *files)}

    def _told(self) -> str:
        return (self._folder / "stderr").read_text()
