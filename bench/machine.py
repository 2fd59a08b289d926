"""The machine under the measurement: what it is, and what else kept it busy meanwhile."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
NOISY_SHARE = 0.05
_ROOT_PID = int(os.environ.setdefault("BENCH_ROOT_PID", str(os.getpid())))
"""The process that was started first, of all that take part in the benchmark."""
_KERNEL_PID = 2
_CALLS, _CALL_ROUNDS = 100_000, 10


def machine() -> dict[str, Any]:
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "call_ns": round(_call_ns()),
    }


class _Called:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def call(self) -> None:
        self.count += 1


def _call_ns() -> float:
    """What the call of a method takes at best: an interpreter that was built without optimization takes twice
    as long, and nothing else tells one from the other."""
    called, times = _Called(), []
    for _ in range(_CALL_ROUNDS):
        started = time.perf_counter_ns()
        for _ in range(_CALLS):
            called.call()
        times.append((time.perf_counter_ns() - started) / _CALLS)
    return min(times)


class Neighbours:
    """CPU that went to others between the start and `share`: they make every figure worse than it is.

    Others are the processes that the benchmark has not started, and the machine's host, which steals time.
    """

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._stolen_s = _stolen_s()
        self._used_s = _used_by_others()

    def share(self) -> float:
        """Of all the machine's CPU time."""
        now = _used_by_others()
        others_s = sum(used_s - self._used_s.get(pid, 0.0) for pid, used_s in now.items())
        total_s = (time.monotonic() - self.started) * (os.cpu_count() or 1)
        return max(0.0, (others_s + _stolen_s() - self._stolen_s) / total_s)


class Round(Protocol):
    """Something measured once, and the share of the machine that went to others meanwhile."""

    @property
    def disturbance(self) -> float: ...


def median_of(rounds: Sequence[Round], figure: str) -> float:
    """The median among the less disturbed half of the rounds and the one in the middle."""
    quietest = sorted(rounds, key=lambda one: one.disturbance)[: len(rounds) // 2 + 1]
    return float(statistics.median(getattr(one, figure) for one in quietest))


def _stolen_s() -> float:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / CLOCK_TICKS_PER_S


def _used_by_others() -> dict[int, float]:
    """CPU time of every process that is neither the kernel's nor ours, with its children that have ended."""
    parents, used_s = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(path.name)] = int(fields[1])
        used_s[int(path.name)] = sum(map(int, fields[11:15])) / CLOCK_TICKS_PER_S
    for root in (_ROOT_PID, _KERNEL_PID):
        for pid in tree(root, parents):
            used_s.pop(pid, None)
    return used_s


def tree(root: int, parents: Mapping[int, int]) -> set[int]:
    """A process and all that it has started."""
    found = {root}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def remark(share: float) -> str:
    """Empty when the machine was quiet."""
    if share < NOISY_SHARE:
        return ""
    return (
        f"other processes took {share:.0%} of the machine meanwhile, so neither these figures nor their"
        " ratios can be relied on; measure again on a quiet machine"
    )
