"""Answers to a fetch that a broker may give, or should not: none of them passes records over."""

from __future__ import annotations

import pytest

from forebay.errors import ProtocolError
from forebay.spark.source.record_batches import select
from forebay.wire.batch import build_batch
from forebay.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from forebay.wire.records import Record
from support.brokers.broker_process import BrokerProcess
from support.spark.odd_answers import first_answered
from support.spark.reading import batch_reader, make_topic, value, values


@pytest.mark.parametrize(
    "responses", [[], [FetchableTopicResponse(topic="t", partitions=[])]], ids=["no-topic", "no-partition"]
)
def test_a_broker_that_throttles_is_asked_again(
    broker: BrokerProcess, topic: str, responses: list[FetchableTopicResponse]
) -> None:
    make_topic(broker.bootstrap, topic, 5)
    with first_answered(FetchRequest, lambda _: FetchResponse(throttle_time_ms=1, responses=responses)):
        assert values(batch_reader(broker.bootstrap, subscribe=topic)) == [value(0, n) for n in range(5)]


def test_bytes_without_a_whole_batch_are_an_error(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 5)

    def cut(answer: FetchResponse) -> FetchResponse:
        (data,) = answer.responses[0].partitions
        assert isinstance(data.records, memoryview)
        data.records = data.records[:-1]
        return answer

    with (
        first_answered(FetchRequest, cut),
        pytest.raises(ProtocolError, match=f"{topic}-0 at offset 0: .* not one whole batch"),
    ):
        values(batch_reader(broker.bootstrap, subscribe=topic))


def test_a_batch_behind_the_end_says_that_nothing_lies_before_it() -> None:
    log = bytes(build_batch([Record(0, 0, None, b"v")], base_offset=50))
    assert select(memoryview(log), start=10, end=20).next_offset == 20
    assert select(memoryview(log)[:-1], start=10, end=60).next_offset == 10
    assert select(memoryview(b""), start=10, end=60).next_offset == 10
