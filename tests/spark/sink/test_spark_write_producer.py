"""The sink's producer: every batch once and in order, over lost connections and restarts of the broker."""

from __future__ import annotations

import pyarrow as pa
import pytest

from forebay.errors import ConfigError, KafkaError
from forebay.spark.sink.options import Columns, WriteOptions
from forebay.spark.sink.producer import Limits, Producer, new_identity
from forebay.spark.sink.task import ROUND_BYTES, TaskSink, rounds
from forebay.spark.wire.connections import Cluster
from forebay.wire.batch import split
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.wire_client import WireClient, create, read, read_all
from support.faults.cutting_proxy import CuttingProxy

OPTIONS = {"kafka.retry.backoff.ms": "10"}


def numbers(first: int, count: int, size: int = 10) -> pa.RecordBatch:
    values = [(b"%d " % n).ljust(size, b".") for n in range(first, first + count)]
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def producer_to(cluster: Cluster, limits: Limits) -> Producer:
    return Producer(cluster, new_identity(cluster), limits)


def sink(producer: Producer, topic: str, limits: Limits, **columns: int) -> TaskSink:
    options = WriteOptions(bootstrap="", topic=topic, limits=limits)
    return TaskSink(producer, options, Columns(value=0, **columns), task=0)


def contents(bootstrap: str, topic: str, partition: int = 0) -> list[int]:
    with WireClient(bootstrap) as client:
        return [int((value or b"").split()[0]) for _, value in read_all(client, topic, partition)]


@pytest.mark.parametrize("seed", range(4))
def test_lost_connections_double_nothing_and_change_no_order(
    start_broker: StartBroker, topic: str, seed: int
) -> None:
    with CuttingProxy(seed=seed, cuts=15, bytes_min=200, bytes_max=20_000) as proxy:
        broker = start_broker(f"advertised.listeners=PLAINTEXT://{proxy.address}")
        proxy.target = ("127.0.0.1", broker.port)
        with WireClient(broker.bootstrap) as client:
            create(client, topic, 1)
        limits = Limits(batch_bytes=500, request_bytes=2_000)
        cluster = Cluster(proxy.address, OPTIONS)
        producer = producer_to(cluster, limits)
        proxy.cutting = True
        sink(producer, topic, limits).write(iter([numbers(0, 3_000), numbers(3_000, 3_000)]))
        cluster.close()
        assert proxy.cuts_done == 15
        assert contents(broker.bootstrap, topic) == list(range(6_000))


def test_a_broker_that_restarts_is_waited_for(fresh_broker: BrokerProcess, topic: str) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, topic, 2)
    limits = Limits(batch_bytes=1_000)
    cluster = Cluster(fresh_broker.bootstrap, OPTIONS)
    producer = producer_to(cluster, limits)
    writing = sink(producer, topic, limits, partition=1)

    def batches(first: int) -> pa.RecordBatch:
        values = numbers(first, 1_000)
        places = pa.array([n % 2 for n in range(1_000)], pa.int32())
        return pa.record_batch({"value": values.column(0), "partition": places})

    writing.write(iter([batches(0)]))
    fresh_broker.kill()
    fresh_broker.start()
    writing.write(iter([batches(1_000)]))
    cluster.close()
    assert contents(fresh_broker.bootstrap, topic, 0) == list(range(0, 2_000, 2))
    assert contents(fresh_broker.bootstrap, topic, 1) == list(range(1, 2_000, 2))


def test_batches_keep_to_the_size_they_were_given(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1)
        limits = Limits(batch_bytes=4_000)
        cluster = Cluster(broker.bootstrap, OPTIONS)
        sink(producer_to(cluster, limits), topic, limits).write(iter([numbers(0, 1_000, size=100)]))
        cluster.close()
        sizes = [header.size for _, header in split(read(client, topic).records)]
    assert max(sizes) <= 4_100
    assert len(sizes) < 1_000 * 120 / 4_000


def test_a_row_that_the_topic_does_not_take_is_an_error_that_says_what_to_do(
    broker: BrokerProcess, topic: str
) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1, max_message_bytes="1000")
    cluster = Cluster(broker.bootstrap, OPTIONS)
    producer = producer_to(cluster, Limits())
    with pytest.raises(KafkaError, match=rf"cannot write to {topic}-0: .*raise max\.message\.bytes"):
        sink(producer, topic, Limits()).write(iter([numbers(0, 1, size=2_000)]))
    producer.abandon()


def test_a_topic_that_is_not_there_and_may_not_be_made_is_named(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker("auto.create.topics.enable=false")
    cluster = Cluster(broker.bootstrap, {**OPTIONS, "kafka.default.api.timeout.ms": "100"})
    producer = producer_to(cluster, Limits())
    with pytest.raises(KafkaError, match=rf"cannot write to topic {topic}: .*create the topic first"):
        sink(producer, topic, Limits()).write(iter([numbers(0, 1)]))
    producer.abandon()


def test_a_transaction_timeout_that_brokers_do_not_allow_is_named(start_broker: StartBroker) -> None:
    broker = start_broker("transaction.max.timeout.ms=5000")
    cluster = Cluster(broker.bootstrap, OPTIONS)
    with pytest.raises(ConfigError, match=r"kafka\.transaction\.timeout\.ms=6000 is longer"):
        new_identity(cluster, "any", 6_000)
    cluster.close()


def test_small_batches_are_put_together_and_empty_ones_left_out() -> None:
    small = [numbers(n, 10, size=1_000) for n in range(0, 2_000, 10)]
    joined = list(rounds(iter([numbers(0, 0), *small, numbers(0, 0)])))
    assert sum(batch.num_rows for batch in joined) == 2_000
    assert len(joined) == 1
    assert list(rounds(iter([numbers(0, 0)]))) == []


def test_a_large_batch_is_taken_in_parts() -> None:
    large = numbers(0, 30_000, size=1_000)
    parts = list(rounds(iter([large])))
    assert len(parts) >= 3
    assert max(part.nbytes for part in parts) < 2 * ROUND_BYTES
    assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches([large])
