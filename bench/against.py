"""This checkout beside another revision of it: the same loads to brokers of both, in turns, in one run.

All brokers run throughout and rest while others work. The load generators are of this checkout. In every
round each load is given to both, and who comes first changes from round to round, so that a machine that gets
slower meanwhile is unfair to neither. A ratio is taken within a round; shown are the median of the ratios and
the middle half of them. A change is named if the median is more than 3 % off and the whole middle half is on
the same side of 1.

With `--python` the other side is run by another interpreter, which has our dependencies installed: two
interpreters are compared by the same revision.
"""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import tarfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench import replication, rounds, shares, versus_cluster
from bench.cluster import ForebayCluster
from bench.latency import produce_round_trips
from bench.load import Measure
from bench.rounds import fresh_topic, warm_page_cache
from bench.server import ROOT, BenchError, ForebayServer
from bench.suite import allow_many_files, scratch_directory

CHANGE_MIN = 0.03
ROUND_TRIPS = 2000
COMMAND = "topic list"


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity in all rounds, of this checkout and of the other revision."""

    name: str
    unit: str
    less_is_better: bool
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def middle_half(self) -> tuple[float, float]:
        if len(self.ratios) < 2:
            return self.ratio, self.ratio
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high

    @property
    def change(self) -> str:
        """`better`, `WORSE`, or empty where nothing is shown."""
        low, high = self.middle_half
        if abs(self.ratio - 1) <= CHANGE_MIN or low <= 1 <= high:
            return ""
        return "better" if (self.ratio < 1) is self.less_is_better else "WORSE"

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "theirs": self.theirs,
            "ratio": self.ratio,
            "middle_half": self.middle_half,
            "change": self.change,
        }


@dataclass(slots=True)
class Side:
    """The brokers of one revision."""

    name: str
    source: Path
    python: str
    scratch: Path
    server: ForebayServer
    cluster: ForebayCluster | None
    """None where no load is for a cluster."""
    starts: int = 0


Measured = Mapping[str, tuple[float, str, bool]]
"""Value, unit and whether less is better, by the name of the quantity."""
MORE, LESS = False, True
THREE_BROKERS = "three brokers"
"""The names of loads for a cluster begin so."""


def _small(load: Callable[[ForebayServer], Measure], side: Side) -> Measured:
    measure = load(side.server)
    return {
        "speed": (measure.requests_per_s, "requests/s", MORE),
        "CPU": (measure.cpu_us_per_request, "µs/request", LESS),
    }


def _large(load: Callable[[ForebayServer], Measure], side: Side) -> Measured:
    measure = load(side.server)
    return {"speed": (measure.mb_per_s, "MB/s", MORE), "CPU": (measure.cpu_s_per_gb, "s/GB", LESS)}


def _replicated(size: replication.Size, side: Side) -> Measured:
    assert side.cluster is not None
    measure = replication.produce(side.cluster, size)
    return {"speed": (measure.mb_per_s, "MB/s", MORE), "CPU": (measure.cpu_s_per_gb, "s/GB", LESS)}


def _shares(partitions: int, members: int, side: Side) -> Measured:
    measured = shares.cycles(side.server, partitions=partitions, members=members)
    return {
        "speed": (measured.cycles_per_s, "cycles/s", MORE),
        "CPU": (measured.cpu_us_per_message, "µs/message", LESS),
    }


def _round_trip(side: Side) -> Measured:
    with fresh_topic(side.server) as (_, topic):
        latency = produce_round_trips(side.server.address, topic, ROUND_TRIPS)
    return {"p50": (latency.p50_us, "µs", LESS), "p99": (latency.p99_us, "µs", LESS)}


def _replicated_round_trip(side: Side) -> Measured:
    cluster = side.cluster
    assert cluster is not None
    before_s = cluster.cpu_s()
    latency = versus_cluster.one_message_at_a_time(cluster)
    return {
        "p50": (latency.p50_us, "µs", LESS),
        "p99": (latency.p99_us, "µs", LESS),
        "CPU": ((cluster.cpu_s() - before_s) / versus_cluster.ROUND_TRIPS * 1e6, "µs/message", LESS),
    }


def _start(side: Side) -> Measured:
    side.starts += 1
    name = f"start-{side.starts}"
    with ForebayServer(side.scratch, name, source=side.source, python=side.python) as broker:
        started = time.perf_counter()
        _command(side, broker)
        command_s = time.perf_counter() - started
        return {
            "to ready": (broker.start_s, "s", LESS),
            "memory": (broker.rss_bytes() / 1e6, "MB", LESS),
            f"forebay {COMMAND}": (command_s, "s", LESS),
        }


def _command(side: Side, broker: ForebayServer) -> None:
    host, port = broker.address
    command = [side.python, "-m", "forebay", *COMMAND.split(), "-b", f"{host}:{port}"]
    environment = {**os.environ, "PYTHONPATH": str(side.source)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode:
        raise BenchError(f"forebay {COMMAND} failed: {done.stderr.decode(errors='replace')[-500:]}")


LOADS: dict[str, Callable[[Side], Measured]] = {
    "start": _start,
    "produce 1 MB": partial(_large, partial(rounds.produce_mb, connections=1)),
    "fetch 1 MB": partial(_large, partial(rounds.fetch_mb, connections=1)),
    "produce 16 KB": partial(_small, partial(rounds.produce_16kb, connections=1)),
    "produce 16 KB, 4 connections": partial(_small, partial(rounds.produce_16kb, connections=4)),
    "produce 200 B": partial(_small, partial(rounds.produce_200b, connections=1)),
    "produce 200 B, deep": partial(_small, partial(rounds.produce_200b_deep, connections=1)),
    "produce round trip": _round_trip,
    "share groups, 16 partitions, 50 members": partial(_shares, 16, 50),
    f"{THREE_BROKERS}, produce 64 KB, acks=all": partial(_replicated, replication.SIZES["64 KB"]),
    f"{THREE_BROKERS}, produce 1 MB, acks=all": partial(_replicated, replication.SIZES["1 MB"]),
    f"{THREE_BROKERS}, one message at a time, acks=all": _replicated_round_trip,
}


def rows_against(
    revision: str, round_count: int, only: Sequence[str] = (), python: str | None = None
) -> list[Row]:
    """`python` is the interpreter of the other revision, if it has its own; then there are no clusters.

    Raises BenchError for a revision that git does not know, or a load that there is not.
    """
    loads = {
        name: load
        for name, load in LOADS.items()
        if (not only or any(each in name for each in only))
        and not (python is not None and name.startswith(THREE_BROKERS))
    }
    if not loads:
        raise BenchError(f"there is no such load; there are: {', '.join(LOADS)}")
    allow_many_files()
    rows: dict[str, Row] = {}
    with scratch_directory() as scratch, ExitStack() as servers:
        sources = {"ours": ROOT / "src", "theirs": _source_of(revision, scratch / "theirs")}
        pythons = {"ours": sys.executable, "theirs": python or sys.executable}
        clustered = any(name.startswith(THREE_BROKERS) for name in loads)
        sides = [
            servers.enter_context(_side(name, source, pythons[name], scratch, clustered=clustered))
            for name, source in sources.items()
        ]
        if not only:  # a few loads have their warm-up round
            warm_page_cache(scratch)
        for number in range(round_count + 1):
            print(
                f"  both in turns: {f'round {number} of {round_count}' if number else 'warm-up'}", flush=True
            )
            measured = _round(loads, sides if number % 2 else sides[::-1])
            if number:
                _add(rows, measured)
    return list(rows.values())


def _round(
    loads: Mapping[str, Callable[[Side], Measured]], sides: Sequence[Side]
) -> dict[str, dict[str, Measured]]:
    measured: dict[str, dict[str, Measured]] = defaultdict(dict)
    for name, load in loads.items():
        for side in sides:
            measured[name][side.name] = load(side)
    return measured


def _add(rows: dict[str, Row], measured: Mapping[str, Mapping[str, Measured]]) -> None:
    for load, of_sides in measured.items():
        for quantity, (value, unit, less_is_better) in of_sides["ours"].items():
            name = f"{load}: {quantity}"
            row = rows.setdefault(name, Row(name, unit, less_is_better))
            row.ours.append(value)
            row.theirs.append(of_sides["theirs"][quantity][0])


def _source_of(revision: str, directory: Path) -> Path:
    """The sources of a revision, unpacked."""
    packed = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        raise BenchError(
            f"git has no sources of {revision!r}: {packed.stderr.decode(errors='replace').strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return directory / "src"


@contextmanager
def _side(name: str, source: Path, python: str, scratch: Path, *, clustered: bool) -> Iterator[Side]:
    directory = scratch / f"brokers-{name}"
    directory.mkdir()
    with ExitStack() as running:
        server = running.enter_context(ForebayServer(directory, "broker", source=source, python=python))
        with _sources_first(source):
            cluster = running.enter_context(ForebayCluster(directory, "cluster")) if clustered else None
        yield Side(name, source, python, directory, server, cluster)


@contextmanager
def _sources_first(source: Path) -> Iterator[None]:
    """The brokers of a cluster inherit the environment of this process."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(source)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def show(title: str, rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    from bench.report import rounded

    table = Table(title=title, title_justify="left")
    for heading in ("", "now", "before", "ratio", "middle half", ""):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for row in rows:
        now, before = statistics.median(row.ours), statistics.median(row.theirs)
        low, high = row.middle_half
        table.add_row(
            row.name,
            f"{rounded(now)} {row.unit}",
            rounded(before),
            f"{row.ratio:.3f} x",
            f"{low:.3f} to {high:.3f}",
            row.change,
            style={"WORSE": "red", "better": "green"}.get(row.change),
        )
    console = Console()
    (console if console.is_terminal else Console(width=140)).print(table)


def summary(rows: Sequence[Row]) -> str:
    worse = [f"{row.name} ({row.ratio:.2f} x)" for row in rows if row.change == "WORSE"]
    if worse:
        return f"worse by more than {CHANGE_MIN:.0%}: {'; '.join(worse)}"
    return f"nothing is worse by more than {CHANGE_MIN:.0%} beyond the spread"
