"""Which worker gets which tests (`support/work_sharing.py`), without workers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from support.work_sharing import FOLDERS, LONG, WorkSharing, place

TESTS = Path(__file__).parents[1]
OTHERS = {"compat"}
"""Folders whose tests `make test` does not run."""
CORES = 2
WORKERS = 5
MODULES = 12
SPARK_TESTS = ["a@jvm", "b@jvm", "c@spark", "d@spark", "e@spark", "f@spark"]
MODULE_TESTS = [f"m{module:02}::{test}@m{module:02}" for module in range(MODULES) for test in range(3)]


class Worker:
    """Runs nothing: the test says what it has done."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Run:
    def __init__(self, config: pytest.Config, tests: list[str]) -> None:
        self.tests = tests
        self.sharing = WorkSharing(config, cores=CORES)
        self.workers = [Worker(number) for number in range(WORKERS)]
        for worker in self.workers:
            self.sharing.add_node(worker)
            self.sharing.add_node_collection(worker, tests)
        self.sharing.schedule()

    def lots(self, number: int) -> list[str]:
        """Of one worker, in their order, without those that are done."""
        return list(dict.fromkeys(self.tests[index].split("@")[1] for index in self.workers[number].given))

    def do(self, number: int) -> None:
        """The worker's next test."""
        worker = self.workers[number]
        self.sharing.mark_test_complete(worker, worker.given.pop(0))

    def done(self) -> int:
        """Everything, by each worker in turn."""
        count = 0
        while busy := [number for number, worker in enumerate(self.workers) if worker.given]:
            for number in busy:
                self.do(number)
                count += 1
        return count


def test_every_folder_of_tests_has_its_place() -> None:
    assert {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")} == {*FOLDERS, *OTHERS}


def test_what_waits_comes_before_what_computes() -> None:
    tests = ["tests/sim/test_a.py::b", "tests/core/x/test_a.py::b", "tests/broker/test_a.py::b", "odd.py::c"]
    assert sorted(tests, key=place) == tests[::-1]


def test_what_takes_long_is_begun_first_at_either_end() -> None:
    waits, computes = "tests/testing/test_secure_etcd.py::a", "tests/siege/test_short_siege.py::a"
    tests = [
        waits,
        "tests/benchmarks/test_a.py::b",
        "tests/core/test_a.py::b",
        "tests/sim/test_a.py::b",
        computes,
    ]
    assert sorted({*tests}, key=place) == tests


def test_every_module_that_takes_long_is_there() -> None:
    assert [module for module in LONG if not (TESTS / module).is_file()] == []


@pytest.fixture
def config(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pytest.Config:
    """As of pytest -n 5 --no-loadscope-reorder."""
    monkeypatch.setattr(request.config.option, "tx", [f"{WORKERS}*popen"])
    monkeypatch.setattr(request.config.option, "loadscopereorder", False)
    return request.config


def test_beside_spark_there_is_one_worker_more_than_cores(config: pytest.Config) -> None:
    run = Run(config, MODULE_TESTS + SPARK_TESTS)
    assert [run.lots(number)[:1] for number in range(WORKERS)] == [["jvm"], ["spark"], ["m00"], [], []]


def test_the_others_begin_when_the_last_test_on_spark_is_done(config: pytest.Config) -> None:
    run = Run(config, MODULE_TESTS + SPARK_TESTS)
    run.do(0)
    run.do(0)
    for _ in range(3):
        run.do(1)
        assert run.lots(3) == run.lots(4) == []
    run.do(1)
    assert run.lots(3)
    assert run.lots(4)


def test_every_other_worker_begins_at_the_back(config: pytest.Config) -> None:
    run = Run(config, MODULE_TESTS)
    assert [run.lots(number) for number in range(WORKERS)] == [["m00"], ["m11"], ["m01"], ["m10"], ["m02"]]


@pytest.mark.parametrize("tests", [MODULE_TESTS + SPARK_TESTS, MODULE_TESTS, SPARK_TESTS, MODULE_TESTS[:4]])
def test_each_test_is_run_once_and_all_workers_end(config: pytest.Config, tests: list[str]) -> None:
    run = Run(config, tests)
    assert run.done() == len(tests)
    assert run.sharing.tests_finished
    assert all(node.shutting_down for node in run.sharing.nodes)


def test_what_a_worker_leaves_that_died_is_given_to_others(config: pytest.Config) -> None:
    run = Run(config, MODULE_TESTS + SPARK_TESTS)
    assert run.sharing.remove_node(run.workers[1]) == "c@spark"
    run.workers[1].given.clear()
    # The test that it died of has failed, and is not begun again with the rest of its lot.
    assert run.done() == len(MODULE_TESTS + SPARK_TESTS) - 1
