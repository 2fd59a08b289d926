"""`python -m bench` measures the broker, `python -m bench kafka` compares it with Apache Kafka,
`python -m bench kafka-shares` its share groups, and `python -m bench kafka-cluster` three brokers with three.
`python -m bench against REV` compares it with another revision of this repository.

All print a table and write `bench/results/*.json`; `--write-docs`, or `python -m bench docs` afterwards,
turns what is there into `docs/performance.md` and its plot.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from bench import report
from bench.delays import delay_figures
from bench.exactly_once import exactly_once_figures
from bench.failover import failover_figures
from bench.footprint import memory_figures, start_figures
from bench.groups import group_figures
from bench.growth import growth_figures
from bench.machine import Neighbours, remark
from bench.replication import replication_figures
from bench.report import Figure
from bench.rounds import warm_page_cache
from bench.security import security_figures
from bench.server import BenchError
from bench.shares import share_figures
from bench.suite import Suite, open_suite
from bench.throughput import throughput_figures
from bench.tiers import tier_figures
from bench.views import view_figures
from bench.waiting import idle_connection_figures, latency_figures

PARTS: dict[str, Callable[[Suite], list[Figure]]] = {
    "throughput": throughput_figures,
    "latency": latency_figures,
    "idle": idle_connection_figures,
    "start": start_figures,
    "memory": memory_figures,
    "growth": growth_figures,
    "groups": group_figures,
    "shares": share_figures,
    "delays": delay_figures,
    "views": view_figures,
    "exactly-once": exactly_once_figures,
    "replication": replication_figures,
    "failover": failover_figures,
    "security": security_figures,
    "tiers": tier_figures,
}


def run_alone(rounds: int, only: list[str]) -> None:
    """Forebay beside the raw limits of this machine."""
    neighbours = Neighbours()
    figures: list[Figure] = []
    with open_suite(rounds) as suite:
        print("warming up the page cache", flush=True)
        warm_page_cache(suite.scratch)
        for name in only or PARTS:
            figures += PARTS[name](suite)
    title = "Forebay beside the raw limits of this machine"
    _conclude("-".join(["forebay", *only]), title, figures, "raw limit", neighbours)


def run_beside_kafka(rounds: int) -> None:
    from bench.versus import versus_figures

    _run_beside("kafka", "Forebay beside Apache Kafka", lambda: versus_figures(rounds))


def run_shares_beside_kafka(rounds: int) -> None:
    from bench.versus_shares import versus_share_figures

    title = "Share groups beside those of Apache Kafka"
    _run_beside("kafka-shares", title, lambda: versus_share_figures(rounds))


def run_cluster_beside_kafka(rounds: int) -> None:
    from bench.versus_cluster import versus_cluster_figures

    title = "Three brokers beside three of Apache Kafka"
    _run_beside("kafka-cluster", title, lambda: versus_cluster_figures(rounds))


def _run_beside(name: str, title: str, measure: Callable[[], tuple[list[Figure], str]]) -> None:
    from bench.kafka_server import why_not

    if reason := why_not():
        print(f"bench-kafka skipped: {reason}")
        return
    neighbours = Neighbours()
    figures, version = measure()
    _conclude(name, f"{title} {version}", figures, "Kafka", neighbours, kafka_version=version)


def run_against(revision: str, rounds: int, only: list[str], python: str | None) -> None:
    from bench.against import rows_against, show, summary

    neighbours = Neighbours()
    rows = rows_against(revision, rounds, only, python)
    share = neighbours.share()
    show(f"This checkout beside {revision}" + (f", run by {python}" if python else ""), rows)
    print(f"{summary(rows)} ({time.monotonic() - neighbours.started:.0f} s)")
    if noise := remark(share):
        print(noise)


def _conclude(
    name: str, title: str, figures: list[Figure], limit_title: str, neighbours: Neighbours, **extra: str
) -> None:
    share = neighbours.share()
    report.show(title, figures, limit_title)
    print(f"{report.summary(figures)} ({time.monotonic() - neighbours.started:.0f} s)")
    if noise := remark(share):
        print(noise)
    print(f"written: {report.save(name, figures, neighbours=round(share, 3), **extra)}")


BESIDE_KAFKA: dict[str, Callable[[int], None]] = {
    "kafka": run_beside_kafka,
    "kafka-shares": run_shares_beside_kafka,
    "kafka-cluster": run_cluster_beside_kafka,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("forebay", "against", *BESIDE_KAFKA, "docs"), default="forebay"
    )
    parser.add_argument("revision", nargs="?", help="of `against`: what git calls it")
    parser.add_argument("--rounds", type=int, default=5, help="of each load, of which the median is taken")
    parser.add_argument("--only", action="append", default=[], help="measure only this part")
    parser.add_argument("--python", help="the interpreter that runs the revision of `against`")
    parser.add_argument("--write-docs", action="store_true", help="write docs/performance.md too")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    unknown = [] if options.what == "against" else [part for part in options.only if part not in PARTS]
    if unknown:
        parser.error(f"--only: there is no {unknown[0]!r}; there are: {', '.join(PARTS)}")
    if (options.what == "against") is (options.revision is None):
        parser.error("`against` takes a revision, and nothing else does")
    if options.python and options.what != "against":
        parser.error("--python goes with `against`")
    try:
        if options.what == "against":
            run_against(options.revision, options.rounds, options.only, options.python)
        elif options.what == "forebay":
            run_alone(options.rounds, options.only)
        elif options.what != "docs":
            BESIDE_KAFKA[options.what](options.rounds)
        if options.write_docs or options.what == "docs":
            from bench.page import write_docs

            write_docs()
    except BenchError as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
