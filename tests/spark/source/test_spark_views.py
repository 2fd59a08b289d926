"""Spark's readers read a view as they read a topic: also where nothing matches, and from the cache."""

from __future__ import annotations

from support.brokers.broker_process import BrokerProcess
from support.clients.view_calls import document, documents, make_view
from support.clients.wire_client import WireClient, append, create
from support.spark.reading import batch_reader, micro_batch, stream_reader, values


def test_a_view_is_read_to_the_end_of_its_source(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic, segment_bytes="4000")
        for first in range(0, 300, 10):
            append(client, topic, documents(range(first, first + 10)))
        make_view(client, f"{topic}-some", topic, "value.id BETWEEN 100 AND 119")
        make_view(client, f"{topic}-none", topic, "value.id < 0")
        expected = [document(number) for number in range(100, 120)]
        for _ in range(2):
            assert values(batch_reader(broker.bootstrap, subscribe=f"{topic}-some")) == expected
            assert values(batch_reader(broker.bootstrap, subscribe=f"{topic}-none")) == []
        stream = stream_reader(broker.bootstrap, subscribe=f"{topic}-some", startingOffsets="earliest")
        found, end = micro_batch(stream, stream.initialOffset())
        assert (found, end) == (expected, {f"{topic}-some": {"0": 300}})
        append(client, topic, documents(range(105, 106)))
        assert micro_batch(stream, end) == ([document(105)], {f"{topic}-some": {"0": 301}})
        stream.stop()
