"""`python -m bench.spark`: rows per second through Forebay's data source, beside Spark's own connector.

Both run in one session on two cores against one Forebay broker, in turns. Prints a table, and writes
`bench/results/spark.json` and `bench/results/spark.png`.

`--only history` measures the old part of a tiered topic instead, read directly and through one broker, and
writes `bench/results/spark-history.json`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from typing import Any

from bench import report
from bench.machine import Neighbours, remark
from bench.report import Figure
from bench.server import BenchError, ForebayServer
from bench.spark import connector, core, history, loads
from bench.spark.loads import Bench
from bench.suite import scratch_directory
from forebay.errors import ForebayError
from forebay.spark.session import session

OURS, THEIRS = "forebay", "kafka"
SIZES = {100: "100 B", 1000: "1 KB"}
ROWS = {100: 2_000_000, 1000: 300_000}
OLD_ROWS = {100: 4_000_000, 1000: 800_000}
"""So many that starting a job, which takes as long either way, matters little."""
COMPARED: dict[str, Callable[[Bench, str, int], float]] = {
    "batch read to noop": loads.batch_read,
    "stream to noop": loads.stream_read,
    "batch read to Parquet": loads.batch_to_parquet,
    "batch write": loads.batch_write,
    "stream, topic to topic": loads.stream_copy,
}
COPY = "topic to topic, from sending a row to its copy"
SHORTEST: dict[str, Callable[[Bench, str], float]] = {
    "one row of many that wait": loads.floor_ms,
    "a row as it arrives": loads.live_ms,
    COPY: loads.copy_latency_ms,
}
Measured = dict[tuple[str, str], list[float]]


def run(rounds: int, share: float) -> None:
    missing = connector.why_not()
    if missing:
        print(f"Spark's own connector is left out: {missing}")
    sides = (OURS,) if missing else (OURS, THEIRS)
    neighbours = Neighbours()
    with scratch_directory() as scratch, ForebayServer(scratch, "broker") as broker:
        jars: dict[str, Any] = {} if missing else {"spark.jars": connector.jars()}
        spark = session("forebay bench", "local[2]", **jars)
        rows = {size: int(number * share) for size, number in ROWS.items()}
        bench = Bench(spark, broker.address, scratch, rows)
        try:
            figures = [*_compared(bench, sides, rounds), *_alone(bench, rounds)]
        finally:
            spark.stop()
    _conclude(figures, neighbours, missing)


def run_history(rounds: int, share: float) -> None:
    neighbours = Neighbours()
    rows = {size: int(number * share) for size, number in OLD_ROWS.items()}
    with scratch_directory() as scratch:
        spark = session("forebay bench", "local[2]")
        try:
            figures = history.history_figures(spark, scratch, SIZES, rows, rounds)
        finally:
            spark.stop()
    _save("spark-history", "Old rows of a tiered topic, 2 cores", figures, "beside", neighbours)


def _compared(bench: Bench, sides: tuple[str, ...], rounds: int) -> list[Figure]:
    shortest: Measured = defaultdict(list)
    print("  micro-batches of one row, not counted", flush=True)
    memory = core.WorkerMemory()
    for side in sides[::-1]:  # ours last
        loads.floor_ms(bench, side)
    memory.look()
    small_mb = memory.peak_mb
    figures = []
    for size, name in SIZES.items():
        print(f"  filling a topic with {bench.rows[size]:,} rows of {name}", flush=True)
        loads.fill(bench, size)
        figures += _sized(bench, sides, rounds, size, memory)
    # Last, when the JVM has compiled what it ever will.
    for number in range(1, rounds + 1):
        print(f"  micro-batches of one row, round {number} of {rounds}", flush=True)
        for (title, load), side in product(SHORTEST.items(), _in_turns(sides, number)):
            shortest[title, side].append(load(bench, side))
    return [*figures, *_floors(shortest), *_memory(bench, small_mb, memory.peak_mb)]


def _in_turns(sides: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Whoever comes second finds the JVM a little warmer: nobody always does."""
    return sides if number % 2 else sides[::-1]


def _sized(
    bench: Bench, sides: tuple[str, ...], rounds: int, size: int, memory: core.WorkerMemory
) -> list[Figure]:
    """The loads with values of one size."""
    name = SIZES[size]
    rates: Measured = defaultdict(list)
    cpus: Measured = defaultdict(list)
    for number in range(rounds + 1):  # the first lets the JVM compile, and is not counted
        for (title, load), side in product(COMPARED.items(), _in_turns(sides, number)):
            print(f"  {name}: {title}, {side}, round {number} of {rounds}", flush=True)
            cpu = core.Cpu()
            rate = load(bench, side, size)
            if number:
                rates[title, side].append(rate)
                cpus[title, side].append(1e6 * cpu.used_s() / bench.rows[size])
            if side == OURS:
                memory.look()
    figures = [figure for title in COMPARED for figure in _rates(title, name, size, rates)]
    return [*figures, *(_cpu(title, name, cpus) for title in COMPARED)]


def _rates(title: str, name: str, size: int, measured: Measured) -> list[Figure]:
    rate, beside = _medians(title, measured)
    return [
        Figure(
            group=f"{name} values",
            name=title,
            value=rate / 1000,
            unit="thousand rows/s",
            limit=None if beside is None else beside / 1000,
            limit_name=THEIRS,
            at_least=1.0,
        ),
        Figure(group=f"{name} values", name=f"{title}, values only", value=rate * size / 1e6, unit="MB/s"),
    ]


def _cpu(title: str, name: str, measured: Measured) -> Figure:
    """Of Spark, its workers and the broker: what a busy machine distorts less than the time on the clock."""
    cost, beside = _medians(title, measured)
    group = f"{name} values, CPU of Spark and broker"
    return Figure(group=group, name=title, value=cost, unit="µs/row", limit=beside, limit_name=THEIRS)


def _medians(title: str, measured: Measured) -> tuple[float, float | None]:
    theirs = measured.get((title, THEIRS))
    return statistics.median(measured[title, OURS]), statistics.median(theirs) if theirs else None


def _floors(measured: Measured) -> list[Figure]:
    figures = []
    for title in SHORTEST:
        shortest, beside = _medians(title, measured)
        figures.append(
            Figure(
                group="latency" if title == COPY else "shortest micro-batch, to noop",
                name=title,
                value=shortest,
                unit="ms",
                limit=beside,
                limit_name=THEIRS,
                at_most=1.0,
            )
        )
    return figures


def _alone(bench: Bench, rounds: int) -> list[Figure]:
    print("  one core without Spark, exactly-once writes, memory of workers", flush=True)
    figures = []
    for size, name in SIZES.items():
        once = statistics.median([loads.exactly_once_write(bench, OURS, size) for _ in range(rounds + 1)][1:])
        made = statistics.median([loads.generated(bench, size) for _ in range(rounds)])
        decoded = max(core.decode_rows_per_s(bench, size) for _ in range(rounds + 1))
        target = 1500.0 if size == 100 else None
        group = f"{name} values, Forebay alone"
        figures += [
            Figure(group=group, name="exactly-once batch write", value=once / 1000, unit="thousand rows/s"),
            Figure(group=group, name="rows made, no sink", value=made / 1000, unit="thousand rows/s"),
            Figure(
                group=group,
                name="fetch and decode, one core",
                value=decoded / 1000,
                unit="thousand rows/s",
                at_least=target,
                judged="value",
            ),
            Figure(
                group=group,
                name="encode, one core",
                value=max(core.encode_rows_per_s(size) for _ in range(rounds)) / 1000,
                unit="thousand rows/s",
            ),
        ]
    return figures


def _memory(bench: Bench, small_mb: float, large_mb: float) -> list[Figure]:
    """What a worker takes must not depend on how much it has read."""
    read_mb = max(size * rows for size, rows in bench.rows.items()) / 1e6
    group = "memory of the largest Python worker"
    return [
        Figure(group=group, name="one row at a time", value=small_mb, unit="MB"),
        Figure(group=group, name=f"after topics of {read_mb:.0f} MB", value=large_mb, unit="MB"),
    ]


def _conclude(figures: list[Figure], neighbours: Neighbours, missing: str | None) -> None:
    title = "Spark on Forebay, 2 cores, 2 partitions"
    left_out = f"left out: {missing}" if missing else "spark-sql-kafka-0-10"
    _save("spark", title, figures, "Spark's connector", neighbours, connector=left_out)


def _save(
    name: str, title: str, figures: list[Figure], beside: str, neighbours: Neighbours, **extra: str
) -> None:
    report.show(title, figures, beside)
    print(f"{report.summary(figures)} ({time.monotonic() - neighbours.started:.0f} s)")
    share = neighbours.share()
    if noise := remark(share):
        print(noise)
    print(f"written: {report.save(name, figures, neighbours=round(share, 3), **extra)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each load, of which the median is taken")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of rows")
    parser.add_argument("--only", choices=("history",), help="measure only this part")
    options = parser.parse_args()
    if options.rounds < 1 or not 0 < options.share <= 10:
        parser.error("--rounds must be at least 1, --share more than 0 and at most 10")
    try:
        (run_history if options.only else run)(options.rounds, options.share)
    except (BenchError, ForebayError) as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
