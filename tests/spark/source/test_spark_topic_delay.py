"""Spark's readers where messages wait: a batch ends at what is due, a stream goes on from there."""

from __future__ import annotations

import time

from forebay.errors import ErrorCode
from support.brokers.broker_process import BrokerProcess
from support.clients.config_calls import increment
from support.clients.wire_client import WireClient, append, batch, create
from support.spark.reading import batch_reader, micro_batch, plan, stream_reader, values

HOUR_MS = 3_600_000
TOPIC, SET = 2, 0


def test_only_what_is_due_is_read(broker: BrokerProcess, topic: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    with WireClient(broker.bootstrap) as client:
        create(client, topic, forebay_delay_ms=str(HOUR_MS))
        for value, age_ms in ((b"a", 3 * HOUR_MS), (b"b", 2 * HOUR_MS), (b"c", 0), (b"d", 2 * HOUR_MS)):
            answer = append(client, topic, batch(value, timestamp=now_ms - age_ms))
            assert answer.error_code == ErrorCode.NONE
        whole = batch_reader(broker.bootstrap, subscribe=topic)
        assert [(each.start, each.end) for each in plan(whole)] == [(0, 2)]
        assert values(whole) == [b"a", b"b"]
        stream = stream_reader(broker.bootstrap, subscribe=topic, startingOffsets="earliest")
        found, end = micro_batch(stream, stream.initialOffset())
        assert (found, end) == ([b"a", b"b"], {topic: {"0": 2}})
        assert micro_batch(stream, end) == ([], end)
        increment(client, TOPIC, topic, ("forebay.delay.ms", SET, "0"))
        assert micro_batch(stream, end) == ([b"c", b"d"], {topic: {"0": 4}})
        stream.stop()
