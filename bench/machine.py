"""The machine under the measurement: what it is, and what else kept it busy meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
NOISY_SHARE = 0.05


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
    }


class Neighbours:
    """CPU that went to others between the start and `share`: they make every figure worse than it is.

    Ours is this process and those of its children that have ended by then.
    """

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.busy_s = busy_s()
        self.own_s = own_s()

    def share(self, also_own_s: float = 0.0) -> float:
        """Of all the machine's CPU time; the kernel's own threads count as others."""
        others_s = (busy_s() - self.busy_s) - (own_s() - self.own_s) - also_own_s
        total_s = (time.monotonic() - self.started) * (os.cpu_count() or 1)
        return max(0.0, others_s / total_s)


class Round(Protocol):
    """Something measured once, and the share of the machine that went to others meanwhile."""

    @property
    def disturbance(self) -> float: ...


def median_of(rounds: Sequence[Round], figure: str) -> float:
    """The median among the less disturbed half of the rounds and the one in the middle."""
    quietest = sorted(rounds, key=lambda one: one.disturbance)[: len(rounds) // 2 + 1]
    return float(statistics.median(getattr(one, figure) for one in quietest))


def busy_s() -> float:
    """CPU time that was not idle, of all cores since the machine started, with what its host has stolen."""
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / CLOCK_TICKS_PER_S


def own_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def remark(share: float) -> str:
    """Empty when the machine was quiet."""
    if share < NOISY_SHARE:
        return ""
    return (
        f"other processes took {share:.0%} of the machine meanwhile, so neither these figures nor their"
        " ratios can be relied on; measure again on a quiet machine"
    )
