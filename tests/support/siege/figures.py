"""What a siege has cost: waits of good clients, leases, memory, CPU and stalls of the brokers."""

from __future__ import annotations

import json
import os
import statistics
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from support.siege.place import Place

_TICKS = os.sysconf("SC_CLK_TCK")
_MB = 1e6
_LEASES_LOST = "forebay_leases_lost_total"
_STALLS = "forebay_loop_stalls_total"
_STALL_LONGEST = "forebay_loop_stall_longest_ms"


@dataclass(frozen=True)
class Waits:
    """In milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    longest_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Waits:
        if not seconds:
            return cls(0, 0.0, 0.0, 0.0)
        ordered = sorted(seconds)
        p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        return cls(len(ordered), statistics.median(ordered) * 1e3, p99 * 1e3, ordered[-1] * 1e3)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one phase. `rss_max_mb`, `cpu_*` and `stall_longest_ms` are of the worst broker."""

    place: str
    phase: str
    seconds: float
    produce: Waits
    read: Waits
    read_view: Waits
    logins: Waits
    machine_late: Waits
    """How late timers fired in the process of the good clients."""
    refused_logins: int
    errors: int
    leases_lost: int
    stalls: int
    stall_longest_ms: float
    rss_max_mb: float
    cpu_percent: float
    cpu_missing_percent: float
    """How much more CPU it would have used if it had not had to wait for others on this machine."""
    done: Mapping[str, int] = field(default_factory=dict)
    """What the attackers have done."""


class BrokerWatch:
    """The brokers' processes and counters, from its making on."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._cpu_before = [cpu_s(pid) for pid in place.pids]
        self._waited_before = [cpu_wait_s(pid) for pid in place.pids]
        self._before = [metrics(address) for address in place.metrics]

    def cpu_percent(self, seconds: float) -> float:
        used = [cpu_s(pid) - before for pid, before in zip(self._place.pids, self._cpu_before, strict=True)]
        return 100 * max(used) / seconds

    def cpu_missing_percent(self, seconds: float) -> float:
        pids = self._place.pids
        waited = [cpu_wait_s(pid) - before for pid, before in zip(pids, self._waited_before, strict=True)]
        return 100 * max(waited) / seconds

    def rss_max_mb(self) -> float:
        return max(map(rss_max_mb, self._place.pids))

    def counted(self) -> tuple[int, int, float]:
        """Leases lost, stalls of loops, and the longest of those since the broker began."""
        after = [metrics(address) for address in self._place.metrics]
        lost, stalls = (
            sum(int(new[name] - old[name]) for new, old in zip(after, self._before, strict=True))
            for name in (_LEASES_LOST, _STALLS)
        )
        return lost, stalls, max(new[_STALL_LONGEST] for new in after)


def cpu_s(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cpu_wait_s(pid: int) -> float:
    """How long its first thread, that of the loop, was ready to run and no core was free."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def rss_max_mb(pid: int) -> float:
    """The most that it had in memory since it began."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024 / _MB


def metrics(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if name[:1] != "#"
    }


# -- report ------------------------------------------------------------------------------------------------


def show(found: Sequence[Figures], console: Console) -> None:
    table = Table(title="siege: waits of good clients in ms, and the worst of the brokers")
    table.add_column("place")
    table.add_column("attack")
    for name in ("p50", "p99", "longest", "read p99", "view p99", "login p50", "longest", "leases lost"):
        table.add_column(name, justify="right")
    for name in ("stall ms", "RSS MB", "CPU %", "no CPU %", "late p99"):
        table.add_column(name, justify="right")
    for each in found:
        table.add_row(
            each.place,
            each.phase,
            f"{each.produce.p50_ms:.1f}",
            f"{each.produce.p99_ms:.0f}",
            f"{each.produce.longest_ms:.0f}",
            f"{each.read.p99_ms:.0f}",
            f"{each.read_view.p99_ms:.0f}",
            f"{each.logins.p50_ms:.0f}",
            f"{each.logins.longest_ms:.0f}",
            str(each.leases_lost),
            f"{each.stall_longest_ms:.0f}",
            f"{each.rss_max_mb:.0f}",
            f"{each.cpu_percent:.0f}",
            f"{each.cpu_missing_percent:.0f}",
            f"{each.machine_late.p99_ms:.0f}",
        )
    console.print(table)
    console.print(
        "no CPU: how long the broker's loop was ready to run and had no core. late: timers in the process of "
        "good clients. Where these are high, others use this machine, and the waits say little."
    )


def write_json(found: Sequence[Figures], path: Path) -> None:
    path.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
