"""Transactions and compaction: how many a second, what an id weighs, how fast a log is compacted."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.client import Client, expect_success
from bench.frames import PRODUCE_VERSION
from bench.groups import find_coordinator
from bench.report import Figure
from bench.rounds import fresh_topic
from bench.server import Address, BenchError, ForebayServer
from bench.suite import Suite
from forebay.wire.batch import TRANSACTIONAL, build_batch
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from forebay.wire.records import Record

INIT, ADD, END, ALTER = 4, 3, 3, 1
TRANSACTION_KEY_TYPE = 1
TOPIC_RESOURCE = 2
PRODUCERS = 4
ROUND_S = 1.0
WEIGHED_IDS = 2_000
COMPACTED_BATCHES = 96
COMPACTED_KEYS = 20_000
SEGMENT_BYTES = 8 << 20
COMPACTION_S_MAX = 120.0
_names = (f"bench-transactional-{number}" for number in itertools.count())


class Transactor:
    """A transactional producer of one connection: one message in each transaction."""

    def __init__(self, address: Address, topic: str) -> None:
        self.client = Client(address)
        self._name, self._topic = next(_names), topic
        find_coordinator(self.client, self._name, TRANSACTION_KEY_TYPE)
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        answer = self.client.ask(request, INIT)
        expect_success("initializing a producer", answer.error_code)
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._sequence = 0

    def transact(self) -> None:
        producer_id, epoch = self._producer
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )
        added = self.client.ask(add, ADD).results_by_topic_v3_and_below[0]
        expect_success("adding a partition", added.results_by_partition[0].partition_error_code)
        produced = self.client.ask(self._produce(), PRODUCE_VERSION)
        expect_success("producing", produced.responses[0].partition_responses[0].error_code)
        end = EndTxnRequest(
            transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        expect_success("committing", self.client.ask(end, END).error_code)

    def _produce(self) -> ProduceRequest:
        batch = build_batch(
            [Record(0, int(time.time() * 1000), None, bytes(100))],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequence,
            attributes=TRANSACTIONAL,
        )
        self._sequence += 1
        part = PartitionProduceData(index=0, records=memoryview(batch))
        data = [TopicProduceData(name=self._topic, partition_data=[part])]
        return ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=30_000, topic_data=data)


def transactions_per_s(address: Address, topic: str, producers: int) -> float:
    counts: list[int] = []
    with ExitStack() as stack:
        transactors = [Transactor(address, topic) for _ in range(producers)]
        for each in transactors:
            stack.enter_context(each.client)
        end = time.monotonic() + ROUND_S
        threads = [threading.Thread(target=_transact_until, args=(each, end, counts)) for each in transactors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if len(counts) < producers:
        raise BenchError("a transactional producer failed")
    return sum(counts) / ROUND_S


def _transact_until(transactor: Transactor, end: float, counts: list[int]) -> None:
    count = 0
    while time.monotonic() < end:
        transactor.transact()
        count += 1
    counts.append(count)


def transactional_id_weight_kb(suite: Suite) -> float:
    """Memory of a thousand transactional ids that have been used."""
    with ForebayServer(suite.scratch, "transactions") as broker, Client(broker.address) as client:
        client.create_topic("weighed")
        find_coordinator(client, "one", TRANSACTION_KEY_TYPE)
        before = broker.rss_bytes()
        for number in range(WEIGHED_IDS):
            request = InitProducerIdRequest(
                transactional_id=f"weighed-{number:06}", transaction_timeout_ms=60_000
            )
            answer = client.ask(request, INIT)
            expect_success("initializing a producer", answer.error_code)
        return (broker.rss_bytes() - before) / 1024 / (WEIGHED_IDS / 1000)


def compaction_mb_per_s(suite: Suite) -> float:
    """From the moment that a full log may be compacted until it is."""
    server = ForebayServer(suite.scratch, "compaction", "log.cleaner.backoff.ms=100")
    with server as broker, Client(broker.address) as client:
        client.create_topic("compacted", configs={"segment.bytes": str(SEGMENT_BYTES)})
        for batch in keyed_batches():
            client.fill("compacted", 1, batch)
        sizes = {file: file.stat().st_size for file in (broker.data / "compacted-0").glob("*.log")}
        active = max(sizes)
        started = time.perf_counter()
        set_config(client, "compacted", "cleanup.policy", "compact")
        _wait_until_compacted(broker, int(active.stem))
        seconds = time.perf_counter() - started
    return sum(size for file, size in sizes.items() if file != active) / 1e6 / seconds


def keyed_batches() -> Iterator[bytes]:
    """Values of 1,000 bytes under keys of which each comes several times."""
    keys = itertools.cycle(range(COMPACTED_KEYS))
    now_ms = int(time.time() * 1000)
    for _ in range(COMPACTED_BATCHES):
        yield bytes(
            build_batch([Record(n, now_ms, b"key-%08d" % next(keys), bytes(1000)) for n in range(1000)])
        )


def set_config(client: Client, topic: str, name: str, value: str) -> None:
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=topic,
        configs=[AlterableConfig(name=name, config_operation=0, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = client.ask(request, ALTER)
    expect_success("altering a topic", answer.responses[0].error_code)


def _wait_until_compacted(broker: ForebayServer, offset: int) -> None:
    """The broker notes up to which offset each log is clean."""
    path = broker.data / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + COMPACTION_S_MAX
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        if any(line.startswith("compacted 0 ") and int(line.split()[2]) >= offset for line in lines):
            return
        if time.monotonic() > deadline:
            raise BenchError("the log was not compacted in time")
        time.sleep(0.01)


def exactly_once_figures(suite: Suite) -> list[Figure]:
    median = statistics.median
    with fresh_topic(suite.broker) as (_, topic):
        address = suite.broker.address
        one = [transactions_per_s(address, topic, 1) for _ in suite.each_round("transactions")]
        several = [
            transactions_per_s(address, topic, PRODUCERS)
            for _ in suite.each_round(f"transactions, {PRODUCERS} producers")
        ]
    print("  weight of transactional ids, compaction", flush=True)
    return [
        _figure("transactions of one message, 1 producer", median(one), "/s"),
        _figure(f"transactions of one message, {PRODUCERS} producers", median(several), "/s"),
        _figure("memory of 1,000 transactional ids", transactional_id_weight_kb(suite), "KB"),
        _figure("compaction of 1 KB records", compaction_mb_per_s(suite), "MB/s"),
    ]


def _figure(name: str, value: float, unit: str) -> Figure:
    return Figure(group="transactions and compaction", name=name, value=value, unit=unit)
