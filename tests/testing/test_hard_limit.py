"""A test that hangs in C code, with the interpreter's lock held, fails; the others are run to their ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1]
SECONDS_MAX = 300.0

CONFTEST = """
    import pytest

    pytest_plugins = ["support.hard_limit"]

    def pytest_configure():
        from support import hard_limit
        hard_limit.GRACE_SECONDS = 1.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(config, log):
        from support.work_sharing import WorkSharing
        return WorkSharing(config, log)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(items):
        for item in items:
            item.add_marker(pytest.mark.xdist_group("all"))
"""
TESTS = """
    import ctypes

    def test_before(): ...

    def test_that_hangs_in_c():
        mutex = ctypes.create_string_buffer(64)
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)

    def test_behind(): ...

    def test_the_last(): ...
"""


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    for name, text in (("conftest.py", CONFTEST), ("test_some.py", TESTS)):
        (tmp_path / name).write_text("\n".join(line[4:] for line in text.splitlines()))
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\nfilterwarnings = error\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:forebay", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(SUPPORT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_run_ends_with_the_stacks(hanging: Path) -> None:
    code, output = run(hanging, "-n0")
    assert code == 1, output
    assert "Timeout (0:00:02)!" in output
    assert "in test_that_hangs_in_c" in output


def test_a_worker_fails_its_test_and_another_does_the_rest(hanging: Path) -> None:
    code, output = run(hanging, "-n2", "--dist=loadgroup")
    assert code == 1, output
    assert "crashed while running 'test_some.py::test_that_hangs_in_c@all'" in output
    assert "1 failed, 3 passed" in output, output
    assert output.count("Timeout (0:00:02)!") == 1, output  # not begun again
