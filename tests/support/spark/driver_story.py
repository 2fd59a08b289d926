"""What the drivers that are killed have to make of a topic, and the same in plain Python.

One topic of Avro, some values of which are none, is archived; filtered; and counted by minute and country.
Each of the three has its own dead letters. `test_spark_driver_kills.py` kills the driver of all three.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding
from forebay.spark.schemas.registry import AVRO, Registry, Schema
from support.spark.topics import NINE_MS, Sent, contents, make, send

ORDERS, THIRDS, TOTALS = "dk-orders", "dk-thirds", "dk-totals"
LETTERS = ("dk-archive-letters", "dk-thirds-letters", "dk-totals-letters")
COUNTRIES = ("de", "fr", "it")
PARTITIONS = 2
BAD_EVERY = 13
MINUTE_MS = 60_000
BURST = 6
BURST_PAUSE_S = 0.3
CONF = {
    "spark.sql.shuffle.partitions": 2,
    # A machine that has no time for us for a minute is no reason to give up.
    "spark.network.timeout": "600s",
    "spark.python.authenticate.socketTimeout": "300s",
}
RESTART = {"when": "on-failure", "times": 100, "backoff": "1s"}
"""Spark gives a new Python process ten seconds to answer, which a busy machine does not always have."""
END_MS = NINE_MS + 10 * 86_400_000
ORDER = Schema(
    AVRO,
    json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "id", "type": "long"}, {"name": "country", "type": "string"}],
        }
    ),
)


class DriverStory:
    def __init__(self, bootstrap: str, registry: str, folder: Path) -> None:
        self._bootstrap, self._registry, self._folder = bootstrap, registry, folder
        number = Registry(registry).register(f"{ORDERS}-value", ORDER)
        self._encode = codecs.writer(Decoding(schema=ORDER, schema_id=number))
        self.sent = 0
        self._stopping = threading.Event()
        make(bootstrap, **{ORDERS: PARTITIONS}, **dict.fromkeys((THIRDS, TOTALS, *LETTERS), 1))

    # -- the topic -------------------------------------------------------------------------------------------

    def feed(self) -> None:
        """Send messages a second of their own time apart, until it is stopped."""
        while not self._stopping.is_set():
            send(self._bootstrap, ORDERS, [self._message(n) for n in range(self.sent, self.sent + BURST)])
            self.sent += BURST
            time.sleep(BURST_PAUSE_S)

    def stop_feeding(self) -> None:
        self._stopping.set()

    def close_windows(self) -> None:
        """A message of a later time, in each partition, which moves every watermark on."""
        value = self._encode({"id": -1, "country": "end"})
        send(self._bootstrap, ORDERS, [Sent(value, b"end", at, END_MS) for at in range(PARTITIONS)])

    def _message(self, n: int) -> Sent:
        order = {"id": n, "country": COUNTRIES[n % 3]}
        value = b"no avro %d" % n if n % BAD_EVERY == 0 else self._encode(order)
        return Sent(value, b"%d" % n, n % PARTITIONS, NINE_MS + n * 1000)

    # -- the pipelines ---------------------------------------------------------------------------------------

    def write_steps(self, path: Path, **when: Any) -> None:
        """`when`: `every` or `once`, of all steps."""
        values: dict[str, Any] = {"format": {ORDERS: "confluent-avro"}, "registry": self._registry}
        thirds = f"SELECT id, country FROM stream('{ORDERS}') WHERE id >= 0 AND id % 3 = 0"
        totals = (
            "SELECT unix_timestamp(window(_timestamp, '1 minute').start) AS minute,"
            " country, count(*) AS orders"
            f" FROM stream('{ORDERS}', watermark => '10 minutes')"
            " GROUP BY window(_timestamp, '1 minute'), country"
        )
        archive = {
            "topic": ORDERS,
            "to": "lake",
            "batch-records": 500,
            "decode": "confluent-avro",
            "registry": self._registry,
            "dead-letters": LETTERS[0],
            **when,
        }
        steps = [
            {"archive": archive},
            {"sql": {"query": thirds, "to": THIRDS, **self._sql("thirds", LETTERS[1]), **values, **when}},
            {"sql": {"query": totals, "to": TOTALS, **self._sql("totals", LETTERS[2]), **values, **when}},
        ]
        path.write_text(yaml.safe_dump({"conf": CONF, "restart": RESTART, "steps": steps}))

    def _sql(self, name: str, letters: str) -> dict[str, Any]:
        return {"checkpoint": str(self._folder / "checkpoints" / name), "dead-letters": letters}

    # -- what has to come out --------------------------------------------------------------------------------

    def _good(self) -> list[int]:
        return [n for n in range(self.sent) if n % BAD_EVERY]

    def wanted(self) -> dict[str, list[Any]]:
        """By topic."""
        bad = sorted(b"%d" % n for n in range(0, self.sent, BAD_EVERY))
        minutes = Counter(((NINE_MS + n * 1000) // MINUTE_MS * 60, COUNTRIES[n % 3]) for n in self._good())
        totals = [(minute, country, count) for (minute, country), count in minutes.items()]
        return {
            THIRDS: [n for n in self._good() if n % 3 == 0],
            TOTALS: sorted(totals),
            **dict.fromkeys(LETTERS, bad),
        }

    def found(self) -> dict[str, list[Any]]:
        rows = {
            topic: [json.loads(one.value or b"") for one in self._contents(topic)]
            for topic in (THIRDS, TOTALS)
        }
        totals = [(row["minute"], row["country"], row["orders"]) for row in rows[TOTALS]]
        return {
            THIRDS: sorted(row["id"] for row in rows[THIRDS]),
            TOTALS: sorted(row for row in totals if row[1] != "end"),
            **{topic: sorted(one.key or b"" for one in self._contents(topic)) for topic in LETTERS},
        }

    def _contents(self, topic: str) -> list[Any]:
        return list(contents(self._bootstrap, topic))

    def offsets(self) -> list[tuple[int, int]]:
        """Partition and offset of every message of the topic."""
        return sorted((one.partition, one.offset) for one in self._contents(ORDERS))
