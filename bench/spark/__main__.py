"""`python -m bench.spark`: rows per second through Forebay's data source, beside Spark's own connector.

Both run in one session on two cores against one Forebay broker, in turns. Prints a table, and writes
`bench/results/spark.json` and `bench/results/spark.png`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import report
from bench.machine import Neighbours, remark
from bench.report import Figure
from bench.server import BenchError, ForebayServer
from bench.spark import connector, core, loads
from bench.spark.loads import Bench
from bench.spark.plot import draw
from bench.suite import scratch_directory
from forebay.errors import ForebayError
from forebay.spark.session import session

OURS, THEIRS = "forebay", "kafka"
SIZES = {100: "100 B", 1000: "1 KB"}
ROWS = {100: 2_000_000, 1000: 400_000}
COMPARED: dict[str, Callable[[Bench, str, int], float]] = {
    "batch read to noop": loads.batch_read,
    "stream to noop": loads.stream_read,
    "batch read to Parquet": loads.batch_to_parquet,
    "batch write": loads.batch_write,
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


def _compared(bench: Bench, sides: tuple[str, ...], rounds: int) -> list[Figure]:
    floor = _floor(bench, sides)
    small_mb = core.worker_rss_mb()
    figures = []
    for size, name in SIZES.items():
        print(f"  filling a topic with {bench.rows[size]:,} rows of {name}", flush=True)
        loads.fill(bench, size)
        measured: Measured = defaultdict(list)
        for number in range(rounds + 1):  # the first lets the JVM compile, and is not counted
            for title, load in COMPARED.items():
                for side in sides:
                    print(f"  {name}: {title}, {side}, round {number} of {rounds}", flush=True)
                    rate = load(bench, side, size)
                    if number:
                        measured[title, side].append(rate)
        for title in COMPARED:
            figures += _rates(title, name, size, measured)
    return [*figures, floor, *_memory(bench, small_mb)]


def _rates(title: str, name: str, size: int, measured: Measured) -> list[Figure]:
    ours, theirs = measured[title, OURS], measured.get((title, THEIRS))
    rate = statistics.median(ours)
    beside = statistics.median(theirs) if theirs else None
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


def _floor(bench: Bench, sides: tuple[str, ...]) -> Figure:
    print("  micro-batches of one row", flush=True)
    found = {side: loads.floor_ms(bench, side) for side in sides}
    return Figure(
        group="micro-batch",
        name="shortest, one row to noop",
        value=found[OURS],
        unit="ms",
        limit=found.get(THEIRS),
        limit_name=THEIRS,
        at_most=1.0,
    )


def _alone(bench: Bench, rounds: int) -> list[Figure]:
    print("  one core without Spark, exactly-once writes, memory of workers", flush=True)
    figures = []
    for size, name in SIZES.items():
        once = statistics.median([loads.exactly_once_write(bench, OURS, size) for _ in range(rounds + 1)][1:])
        made = statistics.median([loads.generated(bench, size) for _ in range(rounds)])
        decoded = max(core.decode_rows_per_s(bench, size) for _ in range(rounds))
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


def _memory(bench: Bench, small_mb: float) -> list[Figure]:
    """What a worker takes must not depend on how much it has read."""
    read_mb = max(size * rows for size, rows in bench.rows.items()) / 1e6
    large_mb, group = core.worker_rss_mb(), "memory of the largest Python worker"
    return [
        Figure(group=group, name="one row at a time", value=small_mb, unit="MB"),
        Figure(group=group, name=f"after topics of {read_mb:.0f} MB", value=large_mb, unit="MB"),
    ]


def _conclude(figures: list[Figure], neighbours: Neighbours, missing: str | None) -> None:
    report.show("Spark on Forebay, 2 cores, 2 partitions", figures, "Spark's connector")
    print(f"{report.summary(figures)} ({time.monotonic() - neighbours.started:.0f} s)")
    # The JVM outlives its session, and is still counted among the living.
    share = neighbours.share(also_own_s=core.spark_cpu_s())
    if noise := remark(share):
        print(noise)
    extra = {"connector": f"left out: {missing}" if missing else "spark-sql-kafka-0-10"}
    path: Path = report.save("spark", figures, neighbours=round(share, 3), **extra)
    picture = path.with_suffix(".png")
    draw(picture, [figure for figure in figures if figure.limit_name])
    print(f"written: {path} and {picture}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each load, of which the median is taken")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of rows")
    options = parser.parse_args()
    if options.rounds < 1 or not 0 < options.share <= 10:
        parser.error("--rounds must be at least 1, --share more than 0 and at most 10")
    try:
        run(options.rounds, options.share)
    except (BenchError, ForebayError) as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
