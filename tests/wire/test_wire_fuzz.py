"""Bytes from strangers: whatever they are, decoding ends soon, in a value or in a ProtocolError."""

from __future__ import annotations

import contextlib
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.errors import ProtocolError
from forebay.wire.codec.compiled import decode, decoder, encode
from forebay.wire.fields import Message
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.message_values import every_message, random_message

CASES = every_message()

# Bytes that read as the largest counts and lengths there are, in either encoding.
GREEDY = [
    b"\xff" * 512,
    b"\x7f" * 512,
    b"\xfe\xff\xff\xff\x0f" * 100,
    b"\x7f\xff\xff\xff" * 128,
    b"\x00\x00\x01\x80" * 128,
    b"\x80\x01" * 256,
    bytes(512),
    b"\x01" * 512,
    b"\x02" * 512,
]


@settings(max_examples=1000)
@given(st.sampled_from(CASES), st.binary(max_size=300))
def test_arbitrary_bytes(case: tuple[type[Message], int], data: bytes) -> None:
    cls, version = case
    with contextlib.suppress(ProtocolError):
        _, position = decoder(cls, version)(memoryview(data), 0)
        assert position <= len(data)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_messages(seed: int) -> None:
    """A value that comes out of damaged bytes is a proper one: it can be encoded and decoded again."""
    random = Random(seed)
    for cls, version in CASES:
        data = encode(random_message(random, cls, version), version)
        for _ in range(10):
            damaged = damage(random, data)
            try:
                value = decode(cls, version, damaged)
            except ProtocolError:
                continue
            assert encode(decode(cls, version, encode(value, version)), version) == encode(value, version)


def damage(random: Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(random.randint(1, 3)):
        position = random.randrange(len(damaged) + 1)
        match random.randrange(3):
            case 0:
                damaged[position : position + 1] = random.choice((b"\0", b"\xff", b"\x7f", b"\x80", b"\x01"))
            case 1:
                del damaged[position : position + random.randint(1, 8)]
            case _:
                damaged[position:position] = random.randbytes(random.randint(1, 8))
    return bytes(damaged)


def test_no_message_can_be_cut_short() -> None:
    """Slices past the end are silent in Python: every prefix of every message must be noticed."""
    random = Random(5)
    for cls, version in CASES:
        data = encode(random_message(random, cls, version), version)
        for end in random.sample(range(len(data)), min(25, len(data))):
            with pytest.raises(ProtocolError):
                decoder(cls, version)(memoryview(data[:end]), 0)


def peak_bytes(cls: type[Message], version: int, data: bytes, *, below: int) -> int:
    """The most memory that decoding takes, once everything that stays is there.

    What threads of other tests allocate meanwhile counts, too. So what is too much is measured again.
    """
    for _ in range(5):
        peak = _peak_bytes(cls, version, data)
        if peak < below:
            break
    return peak


def _peak_bytes(cls: type[Message], version: int, data: bytes) -> int:
    read, view = decoder(cls, version), memoryview(data)
    with contextlib.suppress(ProtocolError):
        read(view, 0)
    tracemalloc.start()
    try:
        with contextlib.suppress(ProtocolError):
            read(view, 0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_greedy_frames_allocate_in_proportion_to_their_size() -> None:
    for cls, version in CASES:
        for data in GREEDY:
            limit = 20 * len(data)
            peak = peak_bytes(cls, version, data, below=limit)
            assert peak < limit, f"{cls.__name__} v{version}: {data[:8]!r}"


def test_the_smallest_elements_there_are_take_memory_in_proportion() -> None:
    topics = 20_000
    data = encode(MetadataRequest(topics=[MetadataRequestTopic() for _ in range(topics)]), 9)
    assert len(data) < 2 * topics + 16
    assert len(decode(MetadataRequest, 9, data).topics or ()) == topics
    assert peak_bytes(MetadataRequest, 9, data, below=60 * len(data)) < 60 * len(data)
