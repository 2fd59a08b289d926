"""Which worker of pytest-xdist gets which tests, and when: for cores that are never idle, and Spark in time.

Two kinds of tests want opposite things. Those on Spark compute, and Spark has time limits of its own that a
busy machine misses: while they run there is one worker more than there are cores, and the others have not
begun. All other tests wait for brokers, clients and timers more than they compute, and their limits are for
what hangs: once Spark is done all workers share them.

Tests that mostly wait stand at the front, those that mostly compute at the back, and the shortest in between.
Modules that take long are the outermost of both. Every other worker begins at the back, so that at any time
some compute while others wait, and what is left for the end is short.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

SPARK = "spark"
"""As `tests/conftest.py` names the tests on the session that all of them share."""
JVM = "jvm"
"""And those that start Spark by themselves."""

FOLDERS = (
    *(
        "benchmarks",
        "broker",
        "chaos",
        "cli",
        "clients",
        "client",
        "console",
        "local",
        "testing",
        "coordination",
    ),
    *("config", "core", "wire", "tiers", "storage", "siege", "spark", "sim"),
)
"""From those that wait to those that compute. The first of them run beside Spark."""
FIRST_COMPUTING = FOLDERS.index("config")

LONG = frozenset(
    (
        *("broker/cluster/test_restored_store.py", "broker/cluster/test_start_without_etcd.py"),
        *("broker/cluster/test_wrong_store.py", "broker/coordinators/test_cluster_coordinators.py"),
        *("broker/delays/test_delays.py", "broker/net/test_large_requests.py"),
        *("broker/net/test_request_memory.py", "broker/replication/test_failover.py"),
        *("broker/views/test_view_costs.py", "broker/views/test_view_offsets.py"),
        *("chaos/test_chaos.py", "chaos/test_cluster_chaos.py"),
        *("cli/test_cli_cluster.py", "cli/test_cli_dead_letters.py", "cli/test_cli_secure.py"),
        *("cli/test_cli_work.py", "cli/test_demo.py"),
        *("client/test_forebay_close.py", "client/test_forebay_close_stories.py"),
        *("client/test_forebay_model.py", "client/test_forebay_queue_broker_killed.py"),
        *("clients/test_fewer_partitions.py", "clients/test_groups_churn.py"),
        *("clients/test_lost_indexes.py", "console/test_console_browser.py"),
        *("console/test_console_delays.py", "console/test_console_messages_browser.py"),
        *("coordination/test_etcd_lease.py", "siege/test_short_siege.py", "sim/test_sim_seeds.py"),
        *("spark/pipelines/archiving/test_pipeline_catalogs.py", "spark/sink/test_spark_write_renewal.py"),
        *("spark/pipelines/archiving/test_pipeline_object_store.py", "storage/test_truncation.py"),
        *("testing/test_other_systems.py", "testing/test_secure_etcd.py"),
    )
)
"""Modules that take twenty seconds and more."""

Worker = Any
"""pytest-xdist has no types: its WorkerController."""


def place(nodeid: str) -> int:
    """Of a test among all; one whose folder is not named comes first."""
    module = nodeid.partition("::")[0].partition("/")[2]
    folder = module.partition("/")[0]
    if folder not in FOLDERS:
        return -1 - len(FOLDERS)
    number = FOLDERS.index(folder)
    if module not in LONG:
        return number
    return number - len(FOLDERS) if number < FIRST_COMPUTING else number + len(FOLDERS)


class WorkSharing(LoadGroupScheduling):  # type: ignore[misc]
    """Lots are the groups of pytest-xdist: a worker gets the next when it has nearly done the last."""

    def __init__(self, config: pytest.Config, log: object = None, cores: int | None = None) -> None:
        super().__init__(config, log)
        self._beside_spark = (cores or os.cpu_count() or 1) + 1
        self._places: dict[Worker, int] = {}

    def add_node(self, node: Worker) -> None:
        super().add_node(node)
        self._places[node] = len(self._places)

    def mark_test_complete(self, node: Worker, item_index: int, duration: float = 0) -> None:
        held = self._held()
        super().mark_test_complete(node, item_index, duration)
        if held and not self._held():
            for each in held:
                self._reschedule(each)

    def remove_node(self, node: Worker) -> str | None:
        """A test in which its worker has ended is not begun again: it would end the next worker, too."""
        held = self._held()
        lots = self.assigned_work[node]
        unfinished = ((lot, test) for lot, tests in lots.items() for test, done in tests.items() if not done)
        crashed = next(unfinished, None)
        if crashed is None:
            super().remove_node(node)
            return None
        lot: str = crashed[0]
        test: str = crashed[1]
        lots[lot][test] = True
        for finished in [name for name, tests in lots.items() if all(tests.values())]:
            del lots[finished]
        super().remove_node(node)
        if held and not self._held():
            for each in held:
                self._reschedule(each)
        return test

    def _reschedule(self, node: Worker) -> None:
        if node not in self._held():
            super()._reschedule(node)

    def _assign_work_unit(self, node: Worker) -> None:
        if node in self._held():
            return  # at the beginning pytest-xdist gives something to every worker
        self.workqueue.move_to_end(self._next_lot(node), last=False)
        super()._assign_work_unit(node)

    def _next_lot(self, node: Worker) -> str:
        for lot in (JVM, SPARK):
            if lot in self.workqueue:
                return lot
        lots = reversed(self.workqueue) if self._places[node] % 2 else iter(self.workqueue)
        first: str = next(lots)
        return first

    def _held(self) -> Collection[Worker]:
        """The workers that wait for the end of Spark."""
        if not self._spark_runs():
            return ()
        return [node for node in self.nodes if self._places[node] >= self._beside_spark]

    def _spark_runs(self) -> bool:
        places = (self.workqueue, *self.assigned_work.values())
        return any(False in lots.get(name, {}).values() for lots in places for name in (JVM, SPARK))
