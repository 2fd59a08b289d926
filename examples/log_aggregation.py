"""Log aggregation from end to end: many web servers, one topic, Spark, and results that are checked.

    python examples/log_aggregation.py                  # with a broker of its own
    python examples/log_aggregation.py -b HOST:PORT     # with yours

Each web server is a producer that sends its access log. `log_aggregation.yml` turns the lines into error
rates per minute and sessions per visitor, exactly once, in topics and in Parquet. In the end the results are
compared with what the servers know that they sent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
from confluent_kafka import Producer

from forebay.client import Admin
from forebay.testing import Broker

HERE = Path(__file__).parent
SERVERS = 6
MINUTES = 20
LINES_PER_MINUTE = 60
VISIT_MINUTES = 4
"""Visitors stay for so long and go; when they have been away for five minutes, their session has ended."""
OPEN_MINUTES = 3
"""The last minutes are not final yet when the logs end: later lines could still belong to them."""
NINE = datetime.now(UTC).replace(hour=9, minute=0, second=0, microsecond=0)
START_S = int((NINE - timedelta(days=1)).timestamp())
"""Yesterday: brokers refuse messages from the future, and delete those that are two weeks old."""
PAGES = ("/", "/search", "/cart", "/checkout", "/help")


@dataclass(frozen=True, slots=True)
class Line:
    time_s: int
    visitor: str
    path: str
    status: int

    def text(self) -> str:
        when = datetime.fromtimestamp(self.time_s, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        return f'{self.visitor} - - [{when}] "GET {self.path} HTTP/1.1" {self.status} {len(self.path) * 100}'


def log_of(server: int) -> list[Line]:
    """What one web server saw; its errors pile up in the tenth minute."""
    chance = random.Random(server)
    lines = []
    for minute in range(MINUTES):
        for second in sorted(chance.choices(range(60), k=LINES_PER_MINUTE)):
            broken = chance.random() < (0.4 if minute == 10 else 0.01)
            lines.append(
                Line(
                    time_s=START_S + minute * 60 + second,
                    visitor=f"10.{server}.{minute // VISIT_MINUTES}.{chance.randrange(20)}",
                    path=chance.choice(PAGES),
                    status=500 if broken else 200,
                )
            )
    return lines


def send(bootstrap: str, server: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "linger.ms": 50})
    for line in log_of(server):
        producer.produce("weblogs", line.text(), f"web-{server}", timestamp=line.time_s * 1000)
    producer.flush()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("-b", "--bootstrap-server", help="a running broker; without it, one is started")
    given = arguments.parse_args()
    with broker(given.bootstrap_server) as bootstrap, tempfile.TemporaryDirectory() as folder:
        produce_all(bootstrap)
        run_pipeline(bootstrap, Path(folder))
        show(Path(folder) / "lake")


@contextlib.contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with Broker(process=True) as started:
        yield started.bootstrap_servers


def produce_all(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("weblogs", partitions=4, exist_ok=True)
        admin.create_topic("error-rates", partitions=1, exist_ok=True)
        admin.create_topic("sessions", partitions=1, exist_ok=True)
    servers = [threading.Thread(target=send, args=(bootstrap, server)) for server in range(SERVERS)]
    for thread in servers:
        thread.start()
    for thread in servers:
        thread.join()
    print(f"{SERVERS} web servers sent {SERVERS * MINUTES * LINES_PER_MINUTE:,} lines to the topic weblogs")


def run_pipeline(bootstrap: str, folder: Path) -> None:
    command = [sys.executable, "-m", "forebay", "pipeline", "run", str(HERE / "log_aggregation.yml")]
    subprocess.run([*command, "-b", bootstrap], cwd=folder, check=True)


def show(lake: Path) -> None:
    """The results as anyone would read them, from Parquet, beside what the servers know."""
    rates = rows_of(lake / "error-rates")
    sessions = rows_of(lake / "sessions")
    lines = [line for server in range(SERVERS) for line in log_of(server)]
    known = Counter(_minute(line) for line in lines if line.status >= 500)
    print("\nminute              requests   errors   rate")
    for rate in rates:
        print(f"{rate['minute']}    {rate['requests']:8,} {rate['errors']:8,}   {rate['error_rate']:.1%}")
        assert rate["errors"] == known[str(rate["minute"])], (
            f"the servers know of {known[str(rate['minute'])]}"
        )
    assert len(rates) >= MINUTES - OPEN_MINUTES, f"only {len(rates)} minutes were counted"
    visits = Counter(line.visitor for line in lines)
    assert sessions, "no session has ended"
    for session in sessions:
        assert session["pages"] == visits[str(session["visitor"])], f"{session} of {visits}"
    longest = max(int(session["pages"]) for session in sessions)
    print(f"\n{len(sessions)} sessions have ended; the longest had {longest} pages")
    print("every count agrees with what the servers sent")


def rows_of(folder: Path) -> list[dict[str, float | str]]:
    values = ds.dataset(folder, format="parquet", partitioning="hive").to_table(["offset", "value"])
    return [json.loads(row["value"]) for row in values.sort_by("offset").to_pylist()]


def _minute(line: Line) -> str:
    return datetime.fromtimestamp(line.time_s, UTC).strftime("%Y-%m-%d %H:%M")


if __name__ == "__main__":
    main()
