"""`python -m bench.scale [CURVE ...] [--smallest N] [--largest N]` measures curves by
size, keeps them in bench/results, and writes them into docs/scale.md with `--write-docs`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bench.scale import (
    classic,
    failover,
    many_brokers,
    many_groups,
    members,
    partitions,
    share_groups,
    surge,
    upkeep,
)
from bench.scale.curve import Row, keep, table, write_page
from bench.server import BenchError
from bench.suite import allow_many_files, scratch_directory

CURVES: dict[str, tuple[Callable[[Path, tuple[int, ...]], list[Row]], tuple[int, ...]]] = {
    "partitions": (partitions.partition_curve, partitions.SIZES),
    "members": (members.member_curve, members.SIZES),
    "classic": (classic.classic_curve, classic.SIZES),
    "share-groups": (share_groups.share_curve, share_groups.SIZES),
    "groups": (many_groups.group_curve, many_groups.SIZES),
    "failover": (failover.failover_curve, failover.SIZES),
    "kafka-failover": (failover.kafka_failover_curve, failover.KAFKA_SIZES),
    "restart": (upkeep.restart_curve, upkeep.RESTART_SIZES),
    "moves": (upkeep.move_curve, upkeep.MOVE_SIZES),
    "brokers": (many_brokers.broker_curve, many_brokers.SIZES),
    "surge": (surge.surge_curve, surge.SIZES),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("curve", nargs="*", choices=[*CURVES, []], help="which of them; all without any")
    parser.add_argument("--smallest", type=int, default=0, help="leave out sizes below this")
    parser.add_argument("--largest", type=int, default=sys.maxsize, help="leave out sizes beyond this")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/scale.md")
    arguments = parser.parse_args()
    names: list[str] = arguments.curve or list(CURVES)
    allow_many_files()
    # Removed when all is measured: a file system that has just lost many files makes new ones slowly.
    with scratch_directory() as scratch:
        for name in names:
            measure, sizes = CURVES[name]
            print(f"{name}:", flush=True)
            (directory := scratch / name).mkdir()
            wanted = tuple(size for size in sizes if arguments.smallest <= size <= arguments.largest)
            rows = measure(directory, wanted)
            keep(name, rows)
            print(table(rows))
    if arguments.write_docs:
        write_page(names)


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench: {error}")
