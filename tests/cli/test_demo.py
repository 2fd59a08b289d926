"""`make demo` shows what it promises; its Spark chapter is tested beside the other tests on Spark."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-u", str(ROOT / "examples" / "demo.py")]
SECONDS_MAX = 600
"""A chapter takes half a minute; a busy machine takes its time."""


@pytest.mark.timeout(SECONDS_MAX + 20)
@pytest.mark.parametrize("chapter", ["broker", "queue", "delays", "views", "partitions", "tiers", "cluster"])
def test_a_chapter_of_the_demo_succeeds(chapter: str) -> None:
    """It checks by itself that nothing was lost, doubled or reordered over a kill -9."""
    done = subprocess.run(
        [*DEMO, "--short", chapter], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as promised" in done.stdout
    assert "none lost, none doubled" in done.stdout
    assert "\x1b" not in done.stdout, "colours are for terminals"


def test_spark_without_java_is_skipped_and_says_how_to_get_it(tmp_path: Path) -> None:
    hidden = tmp_path / "java.py"
    hidden.write_text(
        "import importlib, runpy, sys\n"
        "importlib.import_module('forebay.spark.session').java_homes = lambda: iter(())\n"
        f"sys.path.insert(0, {str(ROOT / 'examples')!r})\n"
        "sys.argv = ['demo.py', 'spark']\n"
        "runpy.run_module('demo', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, str(hidden)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped: Spark needs Java 17" in done.stdout
    assert "apt install" in done.stdout


def test_all_chapters_are_played_unless_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    demo = importlib.import_module("demo")
    played: list[str] = []

    def play(name: str, _short: bool) -> object:
        played.append(name)
        return demo.Outcome(name, demo.KEPT, [], 0)

    monkeypatch.setattr(demo, "_play", play)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process keeps its own
    assert demo.main([]) == 0
    assert played == ["broker", "queue", "delays", "views", "partitions", "tiers", "cluster", "spark"]


def test_an_unknown_chapter_is_refused() -> None:
    done = subprocess.run([*DEMO, "opera"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "broker" in done.stderr and "spark" in done.stderr


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    """In the middle of the first chapter: its broker ends, and its directory is gone."""
    running = subprocess.Popen(
        [*DEMO, "broker"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert running.stdout is not None
    with running, running.stdout as lines:
        while "created topic" not in (line := lines.readline()):
            assert line, "the demo ended before it was interrupted"
        running.send_signal(signal.SIGINT)
        rest = lines.read()  # ends when the last process that holds the pipe has ended
    assert running.returncode == 130
    assert "everything is stopped" in rest
    assert list(tmp_path.iterdir()) == []
