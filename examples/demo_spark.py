"""The third chapter: orders are counted by Spark while they come, archived, and replayed; all numbers agree.

Twelve minutes of trade are sent in twelve seconds. A streaming query counts them, exactly once, into another
topic, which is read here as any service would read it. Then the orders go to Parquet, and from there into a
new topic.
"""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from rich.live import Live
from rich.table import Table

from demo_load import ignore
from demo_stage import TOPIC, Facts, Failed, Skipped, console, no_stderr, step, table, waiting
from forebay.client import Admin
from forebay.errors import ForebayError
from forebay.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, Job

PARTITIONS = 4
RESULTS, AGAIN = "per-minute", "orders-again"
RATE = 2000
FIRST_ORDERS = 100
ORDERS, ORDERS_SHORT = 24_000, 4_000
MINUTE_ORDERS = 2000
NOW = datetime.now(UTC)
START_MS = int(
    (NOW.replace(hour=9, minute=0, second=0, microsecond=0) - timedelta(days=1)).timestamp() * 1000
)
"""Yesterday at nine: brokers refuse messages from the future."""
SPARK_PATIENCE_SECONDS = 240
"""Compiling its first query keeps a busy machine occupied for a while."""
BAR_CHARS = 30
QUERY = """
    SELECT date_format(window(_timestamp, '1 minute').start, 'HH:mm') AS minute,
           count(*) AS orders, sum(cents) AS cents
    FROM stream('orders', schema => 'customer STRING, cents INT')
    GROUP BY window(_timestamp, '1 minute')
"""


@dataclass(frozen=True, slots=True)
class Order:
    customer: str
    cents: int
    timestamp_ms: int

    @property
    def minute(self) -> str:
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC).strftime("%H:%M")


@dataclass(frozen=True, slots=True)
class Total:
    orders: int
    cents: int

    def __str__(self) -> str:
        return f"{self.orders:,} orders, {self.cents / 100:,.2f}"


def all_orders(count: int) -> list[Order]:
    """The same ones every time; trade comes in waves."""
    chance = random.Random(count)
    minutes = count // MINUTE_ORDERS
    places = sorted(chance.triangular(0, minutes, minutes * 0.6) for _ in range(count))
    return [
        Order(
            f"customer-{chance.randrange(97):02}", chance.randrange(100, 50_000), START_MS + int(at * 60_000)
        )
        for at in places
    ]


def play(short: bool) -> Facts:
    _check_spark()
    orders = all_orders(ORDERS_SHORT if short else ORDERS)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-demo-")))
        broker = stack.enter_context(Broker(process=True, data_dir=folder / "data"))
        with Admin(broker.bootstrap_servers) as admin:
            for topic, partitions in ((TOPIC, PARTITIONS), (RESULTS, 1), (AGAIN, PARTITIONS)):
                admin.create_topic(topic, partitions=partitions)
        begun = time.perf_counter()
        with waiting("starting Spark"):
            spark = stack.enter_context(_spark())
        step(f"started a broker, and Spark {spark.version} in {time.perf_counter() - begun:.1f} s")
        return play_on(spark, broker.bootstrap_servers, folder, orders)


def _check_spark() -> None:
    try:
        from forebay.spark.session import find_java

        find_java()
    except ImportError as missing:
        raise Skipped(f"{missing.name} is missing: pip install 'forebay\\[spark]'") from None
    except ForebayError as missing_java:
        raise Skipped(str(missing_java)) from None


@contextlib.contextmanager
def _spark() -> Iterator[SparkSession]:
    from forebay.spark import session

    # PySpark warns of newer versions of pandas, which nothing here uses.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    settings = {"spark.sql.shuffle.partitions": 2, "spark.sql.session.timeZone": "UTC"}
    with no_stderr():
        spark = session("forebay demo", "local[2]", quick=True, **settings)
    try:
        yield spark
    finally:
        spark.stop()


def play_on(spark: SparkSession, address: str, folder: Path, orders: list[Order]) -> Facts:
    from forebay.spark.pipelines import Brokers

    brokers = Brokers(bootstrap=address)
    sent = Total(len(orders), sum(order.cents for order in orders))
    counted = _count_live(spark, brokers, folder, orders)
    archived = _archive(spark, brokers, folder / "lake")
    replayed = _replay(spark, brokers, folder / "lake")
    ways = {"sent": sent, "counted live": counted, "in Parquet": archived, "replayed": replayed}
    shown = table("", "orders", "total", words=1)
    for way, total in ways.items():
        shown.add_row(way, f"{total.orders:,}", f"{total.cents / 100:,.2f}")
    console.print(shown)
    if len(set(ways.values())) > 1:
        raise Failed(f"these should agree: {ways}")
    step("all four agree, to the cent")
    return [
        ("orders sent, and counted live by Spark", str(counted)),
        ("archived to Parquet", str(archived)),
        ("replayed into another topic", str(replayed)),
    ]


# -- counting -----------------------------------------------------------------------------------------------


def _count_live(spark: SparkSession, brokers: Brokers, folder: Path, orders: list[Order]) -> Total:
    from forebay.spark.pipelines import SqlSettings, Trigger, sql

    settings = SqlSettings(
        key="minute", mode="complete", trigger=Trigger(every_ms=500), checkpoint=str(folder / "checkpoint")
    )
    with waiting("starting the query"):
        job = sql(spark, brokers, QUERY, RESULTS, settings)
    step("a streaming query counts orders by minute, exactly once, into the topic per-minute:")
    console.print(
        "   SELECT window.start, count(*), sum(cents) FROM stream('orders') GROUP BY window 1 minute"
    )
    shop = Shop(brokers.bootstrap, orders)
    shop.open()
    try:
        minutes = _watch(job, shop, brokers.bootstrap, len(orders))
    finally:
        job.stop()
    known = Counter(order.minute for order in orders)
    if {minute: total.orders for minute, total in minutes.items()} != known:
        raise Failed(f"Spark has counted {minutes}, but sent were {known}")
    return Total(sum(got.orders for got in minutes.values()), sum(got.cents for got in minutes.values()))


class Shop:
    """Sends orders from a thread, at an even pace, with the time of the trade on each message.

    After the first ones it waits: the first batch of a query takes Spark long, and the show is what follows.
    """

    def __init__(self, address: str, orders: list[Order]) -> None:
        self._orders = orders
        self._problems: list[str] = []
        self._going_on = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": address, "linger.ms": 20, "log_level": 0, "error_cb": ignore}
        )
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)

    def open(self) -> None:
        self._thread.start()

    def go_on(self) -> None:
        self._going_on.set()

    def check(self) -> None:
        if self._problems:
            raise Failed(f"{len(self._problems)} orders were refused: {self._problems[0]}")

    def _run(self) -> None:
        self._send(self._orders[:FIRST_ORDERS])
        self._producer.flush(SPARK_PATIENCE_SECONDS)
        self._going_on.wait(SPARK_PATIENCE_SECONDS)
        self._send(self._orders[FIRST_ORDERS:])
        self._producer.flush(SPARK_PATIENCE_SECONDS)

    def _send(self, orders: list[Order]) -> None:
        begun = time.monotonic()
        for number, order in enumerate(orders):
            value = json.dumps({"customer": order.customer, "cents": order.cents})
            self._producer.produce(
                TOPIC, value, order.customer, timestamp=order.timestamp_ms, on_delivery=self._done
            )
            self._producer.poll(max(0.0, number / RATE - (time.monotonic() - begun)))

    def _done(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._problems.append(error.str())


def _watch(job: Job, shop: Shop, address: str, expected: int) -> dict[str, Total]:
    """What the topic of results says about each minute, until everything is counted."""
    minutes: dict[str, Total] = {}
    begun = time.monotonic()
    counted = 0
    live = Live(console=console, auto_refresh=False, transient=True)
    with _results(address) as consumer, live:
        while counted < expected:
            if time.monotonic() - begun > SPARK_PATIENCE_SECONDS:
                raise Failed(f"only {counted:,} of {expected:,} orders were counted in time")
            job.advance()
            shop.check()
            for message in consumer.consume(100, 0.5):
                if message.error() is None:
                    row = json.loads(message.value() or b"{}")
                    minutes[row["minute"]] = Total(row["orders"], row["cents"])
            before, counted = counted, sum(got.orders for got in minutes.values())
            if counted > before:
                shop.go_on()
                _show(live, minutes, f"{counted:,} of {expected:,} orders are counted")
    console.print(_table(minutes))
    step(f"counted {counted:,} orders in {time.monotonic() - begun:.1f} s")
    return minutes


@contextlib.contextmanager
def _results(address: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "dashboard",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
            "error_cb": ignore,
        }
    )
    consumer.assign([TopicPartition(RESULTS, 0, OFFSET_BEGINNING)])
    try:
        yield consumer
    finally:
        consumer.close()


def _show(live: Live, minutes: dict[str, Total], how_far: str) -> None:
    """At a terminal the table grows; a pipe gets a line each time."""
    live.update(_table(minutes), refresh=True)
    if not console.is_terminal:
        step(how_far)


def _table(minutes: dict[str, Total]) -> Table:
    shown = table("minute", "orders", "total", "", words=1)
    shown.columns[-1].justify = "left"
    most = max((got.orders for got in minutes.values()), default=1)
    for minute, got in sorted(minutes.items()):
        bar = "█" * (BAR_CHARS * got.orders // most)
        shown.add_row(minute, f"{got.orders:,}", f"{got.cents / 100:,.2f}", f"[cyan]{bar}[/]")
    return shown


# -- archive and replay -------------------------------------------------------------------------------------


def _archive(spark: SparkSession, brokers: Brokers, lake: Path) -> Total:
    """Read back without Spark, as any tool that knows Parquet would."""
    import pyarrow.dataset as ds

    from forebay.spark.pipelines import archive

    begun = time.monotonic()
    with waiting("archiving to Parquet"):
        archive(spark, brokers, TOPIC, str(lake)).wait()
    files = list(lake.glob("date=*/hour=*/*.parquet"))
    folders = ", ".join(sorted({str(file.parent.relative_to(lake)) for file in files}))
    step(
        f"archived the topic to Parquet in {time.monotonic() - begun:.1f} s: {len(files)} files in {folders}"
    )
    values = ds.dataset(files, format="parquet").to_table(["value"])["value"].to_pylist()
    return Total(len(values), sum(json.loads(value)["cents"] for value in values))


def _replay(spark: SparkSession, brokers: Brokers, lake: Path) -> Total:
    """Read back as a table of Spark."""
    from forebay.spark.pipelines import replay

    begun = time.monotonic()
    with waiting(f"replaying into {AGAIN}"):
        replay(spark, brokers, str(lake), AGAIN).wait()
    step(f"replayed the archive into the topic {AGAIN} in {time.monotonic() - begun:.1f} s")
    with waiting(f"reading {AGAIN} with Spark"):
        amounts = brokers.read(spark, AGAIN).selectExpr(
            "CAST(get_json_object(CAST(value AS STRING), '$.cents') AS LONG) AS cents"
        )
        row = amounts.selectExpr("count(*) AS orders", "sum(cents) AS cents").collect()[0]
    return Total(row["orders"], row["cents"])
