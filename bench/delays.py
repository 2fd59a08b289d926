"""Messages that wait: how late they come, what a million of them costs, and how many can be due at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.client import Client, expect_success
from bench.frames import FETCH_VERSION, PRODUCE_VERSION, produce_request
from bench.report import Figure
from bench.server import BenchError, ForebayServer, Server
from bench.suite import Suite
from forebay import __version__
from forebay.wire.batch import build_batch, records, split
from forebay.wire.messages.api_versions import OWN_SOFTWARE_NAME, ApiVersionsRequest
from forebay.wire.messages.describe_delays import DescribeDelaysRequest
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from forebay.wire.records import Header, Record

DELAY_MS = 200
SAMPLES = 100
LATE_MS_MAX = 50.0
PENDING = 1_000_000
PENDING_MB_MAX = 100.0
START_S_MAX = 2.0
BATCH_RECORDS = 1_000
VALUE = b"v" * 100
DAY_MS = 86_400_000
BURST = 200_000
BURST_LEAD_MS = 40_000
DUE_PER_S_MIN = 20_000.0
WAIT_S_MAX = 600.0
FETCH_BYTES = 4 << 20
GROUP = "messages that wait"
TOPIC = "later"
SINGLE = {"forebay.delay.enable": "true", "forebay.delay.pending.max": str(2 * PENDING)}


def delay_figures(suite: Suite) -> list[Figure]:
    return [*_late_figures(suite), *_pending_figures(suite), *_burst_figures(suite)]


# -- how late they come ------------------------------------------------------------------------------------


def _late_figures(suite: Suite) -> list[Figure]:
    print("  how late messages come", flush=True)
    with ForebayServer(suite.scratch, "late") as broker, Client(broker.address) as client:
        client.create_topic("all-later", configs={"forebay.delay.ms": str(DELAY_MS)})
        client.create_topic(TOPIC, configs=SINGLE)
        by_topic = _late_ms(broker, "all-later", lambda now_ms: ((), now_ms + DELAY_MS))
        single = _late_ms(broker, TOPIC, lambda now_ms: (_at(now_ms + DELAY_MS), now_ms + DELAY_MS))
    return [
        *_late("a topic's delay", by_topic),
        *_late("a delayed message", single),
    ]


def _late_ms(broker: Server, topic: str, plan: Callable[[int], tuple[Sequence[Header], int]]) -> list[float]:
    """One message after the other, each waited for by a long poll; how late each came."""
    late: list[float] = []
    with Client(broker.address) as producer, Reader(broker, topic) as reader:
        for _ in range(SAMPLES):
            now_ms = time.time_ns() // 1_000_000
            headers, due_ms = plan(now_ms)
            batch = bytes(build_batch([Record(0, now_ms, None, VALUE, headers)]))
            _produce(producer, topic, batch)
            reader.read(1)
            late.append(time.time_ns() / 1e6 - due_ms)
            if late[-1] < 0:
                raise BenchError(f"a message came {-late[-1]:.1f} ms early")
    return sorted(late)


def _late(what: str, late_ms: Sequence[float]) -> list[Figure]:
    return [
        Figure(group=GROUP, name=f"{what}: late, p50", value=late_ms[len(late_ms) // 2], unit="ms"),
        Figure(
            group=GROUP,
            name=f"{what}: late, worst of {len(late_ms)}",
            value=late_ms[-1],
            unit="ms",
            at_most=LATE_MS_MAX,
            judged="value",
        ),
    ]


# -- many that wait ----------------------------------------------------------------------------------------


def _pending_figures(suite: Suite) -> list[Figure]:
    print(f"  {PENDING:,} messages that wait", flush=True)
    with ForebayServer(suite.scratch, "pending") as broker, Client(broker.address) as client:
        client.create_topic(TOPIC, configs=SINGLE)
        empty_start_s, before_mb = broker.start_s, broker.rss_bytes() / 1e6
        started = time.perf_counter()
        first_ms = time.time_ns() // 1_000_000 + DAY_MS
        for number in range(PENDING // BATCH_RECORDS):
            _produce(client, TOPIC, _batch(first_ms + number * 80, BATCH_RECORDS))
        scheduled_s = time.perf_counter() - started
        _wait_until(lambda: _pending(client) == PENDING)
        grown_mb = broker.rss_bytes() / 1e6 - before_mb
        most_mb = broker.rss_bytes_max() / 1e6 - before_mb
    started = time.perf_counter()
    with ForebayServer(suite.scratch, "pending") as broker, Client(broker.address) as client:
        _wait_until(lambda: _pending(client) == PENDING)
        ready_s = time.perf_counter() - started
        start_mb = broker.rss_bytes_max() / 1e6 - before_mb
    limits = {"at_most": PENDING_MB_MAX, "judged": "value"}
    return [
        _figure("scheduled", PENDING / scheduled_s, "messages/s"),
        _figure(f"{PENDING:,} waiting: memory", grown_mb, "MB", **limits),
        _figure(f"{PENDING:,} waiting: most memory while they came", most_mb, "MB"),
        _figure(f"{PENDING:,} waiting: memory after a start", start_mb, "MB", **limits),
        Figure(
            group=GROUP,
            name=f"{PENDING:,} waiting: from start to the first answer about them",
            value=ready_s,
            unit="s",
            limit=empty_start_s,
            limit_name="empty broker ready",
            at_most=START_S_MAX,
            judged="value",
        ),
    ]


def _burst_figures(suite: Suite) -> list[Figure]:
    """All due at the same moment: how fast they become visible, and what that costs."""
    print(f"  {BURST:,} messages due at once", flush=True)
    with ForebayServer(suite.scratch, "burst") as broker, Client(broker.address) as client:
        client.create_topic(TOPIC, configs=SINGLE)
        due_ms = time.time_ns() // 1_000_000 + BURST_LEAD_MS
        for _ in range(BURST // BATCH_RECORDS):
            _produce(client, TOPIC, _batch(due_ms, BATCH_RECORDS))
        if time.time_ns() // 1_000_000 >= due_ms:
            raise BenchError(f"{BURST:,} messages were not scheduled within {BURST_LEAD_MS / 1000} s")
        with Reader(broker, TOPIC) as reader:
            time.sleep(max(due_ms / 1000 - time.time() - 0.5, 0))
            cpu_s = broker.cpu_s()
            reader.read(BURST)
            seconds = time.time() - due_ms / 1000
            cpu_s = broker.cpu_s() - cpu_s
    rate = {"at_least": DUE_PER_S_MIN, "judged": "value"}
    return [
        _figure("due at once: delivered", BURST / seconds, "messages/s", **rate),
        _figure("due at once: delivered per second of the broker's CPU", BURST / cpu_s, "messages/s", **rate),
    ]


# -- pieces ------------------------------------------------------------------------------------------------


class Reader:
    """Reads a partition from its start by long polls, and counts messages."""

    def __init__(self, broker: Server, topic: str) -> None:
        self._client = Client(broker.address)
        self._topic = topic
        self._offset = 0

    def read(self, count: int) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while count > 0:
            if time.monotonic() > deadline:
                raise BenchError(f"{count} messages did not come")
            count -= self._fetch()

    def _fetch(self) -> int:
        wanted = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=2_000,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=self._topic, partitions=[wanted])],
        )
        answer = self._client.ask(request, FETCH_VERSION).responses[0].partitions[0]
        expect_success("reading", answer.error_code)
        data, count = bytes(answer.records or b""), 0
        for position, header in split(data):
            if not header.is_control and header.record_count:
                batch = data[position : position + header.size]
                count += sum(record.offset >= self._offset for record in records(batch))
            self._offset = max(self._offset, header.next_offset)
        return count

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def _at(due_ms: int) -> list[Header]:
    return [("forebay-deliver-at", b"%d" % due_ms)]


def _batch(due_ms: int, count: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    headers = _at(due_ms)
    return bytes(build_batch([Record(n, now_ms, b"%d" % n, VALUE, headers) for n in range(count)]))


def _produce(client: Client, topic: str, batch: bytes) -> None:
    answer = client.ask(produce_request(topic, batch, acks=-1), PRODUCE_VERSION)
    expect_success("producing", answer.responses[0].partition_responses[0].error_code)


def _pending(client: Client) -> int:
    """How many wait, or -1 while the broker cannot tell."""
    own = ApiVersionsRequest(client_software_name=OWN_SOFTWARE_NAME, client_software_version=__version__)
    client.ask(own)
    answer = client.ask(DescribeDelaysRequest(topic=TOPIC, partition=0, limit=1))
    pending: int = -1 if answer.error_code else answer.pending
    return pending


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError("the broker has not come that far")
        time.sleep(0.02)


def _figure(name: str, value: float, unit: str, **target: object) -> Figure:
    return Figure(group=GROUP, name=name, value=value, unit=unit, **target)  # type: ignore[arg-type]
