"""Elements are counted before anything is made of them, and what is done in steps is the same as at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Generator
from random import Random
from typing import Any, TypeVar

import pytest

from forebay.errors import ProtocolError, TooManyElements
from forebay.wire.codec.compiled import (
    bounded_decoder,
    decoder,
    encode,
    encoder,
    stepwise_appender,
    stepwise_decoder,
)
from forebay.wire.codec.layout import UNKNOWN_TAGS_MAX, uvarint
from forebay.wire.fields import Message, Struct
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from forebay.wire.parts import join
from wire.message_values import every_message, message_id, random_message

T = TypeVar("T")
MANY = 10**9


def finished(steps: Generator[None, None, T]) -> tuple[T, int]:
    """What the steps return, and how many there were."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result, count
        count += 1


def elements(value: Any) -> int:
    """How many elements all arrays of a message have."""
    if isinstance(value, list):
        return len(value) + sum(elements(item) for item in value)
    if isinstance(value, Struct):
        return sum(elements(getattr(value, name)) for name in value.FIELDS)
    return 0


def tags(value: Any) -> int:
    """At most how many tagged fields a message has: they count, too."""
    if isinstance(value, list):
        return sum(tags(item) for item in value)
    if isinstance(value, Struct):
        own = sum(field.tag is not None for field in value.FIELDS.values())
        return own + sum(tags(getattr(value, name)) for name in value.FIELDS)
    return 0


@pytest.mark.parametrize("case", every_message(), ids=message_id)
def test_all_forms_of_a_decoder_and_of_an_encoder_agree(case: tuple[type[Message], int]) -> None:
    cls, version = case
    random = Random(1)
    for _ in range(3):
        message = random_message(random, cls, version)
        data = memoryview(encode(message, version))
        plain = decoder(cls, version)(data, 0)
        assert bounded_decoder(cls, version)(data, 0, MANY) == plain
        assert finished(stepwise_decoder(cls, version)(data, 0, MANY))[0] == plain
        parts: list[Any] = []
        last, _ = finished(stepwise_appender(cls, version)(message, bytearray(), parts))
        assert join([*parts, last]) == join(encoder(cls, version)(message))


@pytest.mark.parametrize("case", every_message(), ids=message_id)
def test_elements_of_all_arrays_count_together(case: tuple[type[Message], int]) -> None:
    cls, version = case
    message = random_message(Random(2), cls, version)
    data, count = memoryview(encode(message, version)), elements(message)
    bounded_decoder(cls, version)(data, 0, count + tags(message))
    if count:
        with pytest.raises(TooManyElements, match=f"more than {count - 1} elements"):
            bounded_decoder(cls, version)(data, 0, count - 1)
        with pytest.raises(TooManyElements):
            finished(stepwise_decoder(cls, version)(data, 0, count - 1))


def test_many_short_lists_count_as_one_long_list() -> None:
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[1, 2, 3]) for _ in range(1000)]
    data = memoryview(encode(AddPartitionsToTxnRequest(v3_and_below_topics=topics), 3))
    bounded_decoder(AddPartitionsToTxnRequest, 3)(data, 0, 4000)
    with pytest.raises(TooManyElements):
        bounded_decoder(AddPartitionsToTxnRequest, 3)(data, 0, 3999)


def test_what_is_refused_has_taken_no_memory() -> None:
    names = [MetadataRequestTopic(name="a")] * 1_000_000
    data = memoryview(encode(MetadataRequest(topics=names), 13))
    decode = bounded_decoder(MetadataRequest, 13)
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElements):
            decode(data, 0, 100_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_a_long_request_takes_many_steps() -> None:
    names = [MetadataRequestTopic(name="a")] * 50_000
    data = memoryview(encode(MetadataRequest(topics=names), 12))
    (request, _), steps = finished(stepwise_decoder(MetadataRequest, 12)(data, 0, 100_000))
    assert len(request.topics) == 50_000 and steps > 400


def tagged_names(count: int, tags_of_each: int) -> bytes:
    """Metadata in version 9, whose names have tagged fields that nobody knows."""
    section = uvarint(tags_of_each) + b"\x50\x00" * tags_of_each
    return uvarint(count + 1) + (b"\x02a" + section) * count + bytes(4)


def test_tagged_fields_count() -> None:
    data = memoryview(tagged_names(100, 50))
    bounded_decoder(MetadataRequest, 9)(data, 0, 5100)
    with pytest.raises(TooManyElements):
        bounded_decoder(MetadataRequest, 9)(data, 0, 5099)


def test_no_struct_has_more_tagged_fields_than_anybody_needs() -> None:
    decoder(MetadataRequest, 9)(memoryview(tagged_names(1, UNKNOWN_TAGS_MAX)), 0)
    with pytest.raises(ProtocolError, match="tagged fields"):
        decoder(MetadataRequest, 9)(memoryview(tagged_names(1, UNKNOWN_TAGS_MAX + 1)), 0)
