"""Clicks to Iceberg tables, with clicks that come late, and results that are checked.

    python examples/clickstream.py                  # with a broker of its own
    python examples/clickstream.py -b HOST:PORT     # with yours

Phones keep clicks while they have no network, so that some arrive minutes after they happened and a few much
later. `clickstream.yml` counts the views of each minute when it is final, and keeps every click in a table.
It is run twice, as by cron, and in the end the counts are compared with the clicks that were sent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyiceberg.catalog.sql import SqlCatalog

from forebay.client import Admin
from forebay.testing import Broker

HERE = Path(__file__).parent
MINUTES = 30
CLICKS_PER_MINUTE = 40
HALF = MINUTES // 2
"""What has arrived by then is in the first of two runs."""
LATE_MINUTES = 3
"""Most clicks that are late come this late, and count."""
VERY_LATE_MINUTES = 12
"""Few come so late that their minute is final."""
OPEN_MINUTES = 6
"""The last minutes are not final when the clicks end: later ones could still belong to them."""
NINE = datetime.now(UTC).replace(hour=9, minute=0, second=0, microsecond=0) - timedelta(days=1)
PAGES = ("/", "/search", "/cart", "/checkout")


@dataclass(frozen=True, slots=True)
class Click:
    visitor: str
    page: str
    at: datetime
    arrives: datetime

    @property
    def minute(self) -> str:
        return self.at.strftime("%Y-%m-%d %H:%M")

    def value(self) -> str:
        return json.dumps({"visitor": self.visitor, "page": self.page, "at": self.at.isoformat()})


def clicks() -> list[Click]:
    """In the order of their arrival."""
    chance = random.Random(7)
    found = []
    for number in range(MINUTES * CLICKS_PER_MINUTE):
        at = NINE + timedelta(seconds=number * 60 / CLICKS_PER_MINUTE)
        (late,) = chance.choices((0, LATE_MINUTES, VERY_LATE_MINUTES), (90, 9, 1))
        visitor, page = f"visitor-{chance.randrange(50)}", chance.choice(PAGES)
        found.append(Click(visitor, page, at, at + timedelta(minutes=late)))
    return sorted(found, key=lambda click: click.arrives)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("-b", "--bootstrap-server", help="a running broker; without it, one is started")
    given = arguments.parse_args()
    with broker(given.bootstrap_server) as bootstrap, tempfile.TemporaryDirectory() as folder:
        make_topics(bootstrap)
        for half in (0, 1):
            send(bootstrap, half)
            run_pipeline(bootstrap, Path(folder))
        show(Path(folder) / "lake")


@contextlib.contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with Broker(process=True) as started:
        yield started.bootstrap_servers


def make_topics(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("clicks", partitions=1, exist_ok=True)
        admin.create_topic("page-views", partitions=1, exist_ok=True)


def send(bootstrap: str, half: int) -> None:
    """Those that arrive in the first half of the time, or in the second."""
    middle = NINE + timedelta(minutes=HALF)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for click in clicks():
        if (click.arrives >= middle) == bool(half):
            moment_ms = int(click.arrives.timestamp() * 1000)
            producer.produce("clicks", click.value(), click.visitor, timestamp=moment_ms)
    producer.flush()


def run_pipeline(bootstrap: str, folder: Path) -> None:
    command = [sys.executable, "-m", "forebay", "pipeline", "run", str(HERE / "clickstream.yml")]
    subprocess.run([*command, "-b", bootstrap], cwd=folder, check=True)


def show(lake: Path) -> None:
    """The tables as anyone would read them, beside what was sent."""
    counted = [json.loads(row["value"]) for row in rows_of(lake / "page-views", "page-views")]
    kept = [json.loads(row["value"]) for row in rows_of(lake / "clicks", "clicks")]
    sent = clicks()
    assert len(kept) == len(sent), f"the table of clicks has {len(kept)} of {len(sent)}"
    known = Counter((click.minute, click.page) for click in sent)
    in_time = Counter(
        (click.minute, click.page)
        for click in sent
        if click.arrives - click.at < timedelta(minutes=VERY_LATE_MINUTES)
    )
    too_late = 0
    for view in counted:
        place = (view["minute"], view["page"])
        assert in_time[place] <= view["views"] <= known[place], f"{view}, of {known[place]} clicks"
        too_late += known[place] - view["views"]
    minutes = {view["minute"] for view in counted}
    assert len(minutes) >= MINUTES - OPEN_MINUTES, f"only {len(minutes)} minutes were counted"
    assert len(counted) == len({(view["minute"], view["page"]) for view in counted}), (
        "a minute was final twice"
    )
    assert too_late, "some clicks come after their minute is final"
    print(f"{len(kept):,} clicks are in the table clicks; {len(minutes)} minutes are final in page-views")
    print(f"{too_late} clicks came after their minute was final: they are in the table clicks only")
    print("every count agrees with what was sent")


def rows_of(folder: Path, topic: str) -> list[dict[str, Any]]:
    catalog = SqlCatalog("forebay", uri=f"sqlite:///{folder}/_forebay/iceberg.db")
    table = catalog.load_table(("archive", topic))
    rows: list[dict[str, Any]] = table.scan(selected_fields=("value",)).to_arrow().to_pylist()
    return rows


if __name__ == "__main__":
    main()
