"""The formats of tiered storage: what was encoded is decoded, and damage is an error."""

from __future__ import annotations

import pytest

from forebay.errors import ProtocolError
from forebay.wire.batch import build_batch, read_header
from forebay.wire.records import Record
from forebay.wire.tiers.layout import (
    manifest_key,
    partition_of,
    segment_key,
    segment_name,
    topic_id_of,
    topic_key,
)
from forebay.wire.tiers.manifest import Doomed, Manifest, RemoteSegment, decode_manifest, encode_manifest
from forebay.wire.tiers.segment_object import (
    AbortedSpan,
    ChunkBuilder,
    SegmentIndex,
    batch_headers,
    check_chunk,
    chunk_at,
    decode_tail,
    encode_tail,
)

TOPIC_ID = bytes(range(16))


def segment(base: int, end: int) -> RemoteSegment:
    key = segment_key(TOPIC_ID, 0, base, end, 3, "abc")
    return RemoteSegment(key, base, end, 100, 200, 5, ((2, base), (3, base + 1)), 0, "00", 9)


def batches(count: int, size: int) -> list[bytes]:
    return [
        bytes(
            build_batch(
                [Record(offset, 1000 + offset, None, b"v" * size)],
                base_offset=offset,
                partition_leader_epoch=offset // 2,
            )
        )
        for offset in range(count)
    ]


def test_a_manifest_is_decoded_as_it_was_encoded() -> None:
    manifest = Manifest(
        topic="orders",
        topic_id=TOPIC_ID,
        partition=7,
        version=12,
        leader_epoch=3,
        writer="1-x",
        start_offset=4,
        segments=(segment(0, 10), segment(10, 30)),
        pending=("k",),
        doomed=(Doomed("d", 5),),
    )
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert (manifest.first_offset, manifest.next_offset) == (4, 30)
    found = manifest.find(10)
    assert found is not None and found.base_offset == 10
    assert manifest.find(3) is None and manifest.find(30) is None
    assert [each.base_offset for each in manifest.from_offset(9)] == [0, 10]
    assert [each.base_offset for each in manifest.from_offset(10)] == [10]
    assert [each.base_offset for each in manifest.from_offset(0, 10)] == [0]
    assert [each.base_offset for each in manifest.from_offset(9, 11)] == [0, 10]
    assert not manifest.from_offset(30) and not manifest.from_offset(0, 0)


def test_a_manifest_with_a_gap_is_refused() -> None:
    manifest = Manifest("t", TOPIC_ID, 0, segments=(segment(0, 10), segment(11, 30)))
    with pytest.raises(ProtocolError):
        decode_manifest(encode_manifest(manifest))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"format": 2}', b'{"format": 1}'])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_manifest(data)


def test_chunks_hold_whole_batches_and_cover_everything() -> None:
    builder, data = ChunkBuilder(chunk_bytes=1000), b""
    made = batches(40, 200)
    for batch in made:
        data += builder.add(batch, read_header(batch)) or b""
    data += builder.finish() or b""
    assert data == b"".join(made)
    assert builder.data_bytes == len(data)
    chunks = builder.chunks
    assert [chunk.base_offset for chunk in chunks[1:]] == [chunk.next_offset for chunk in chunks[:-1]]
    for chunk in chunks:
        part = data[chunk.position : chunk.position + chunk.length]
        check_chunk(chunk, part)
        headers = batch_headers(part)
        assert headers[0][1].base_offset == chunk.base_offset
        assert headers[-1][1].next_offset == chunk.next_offset
        with pytest.raises(ProtocolError):
            check_chunk(chunk, part[:-1] + b"!")
    number = chunk_at(chunks, 20)
    assert number is not None and chunks[number].base_offset <= 20 < chunks[number].next_offset
    assert chunk_at(chunks, 40) is None


def test_an_index_is_decoded_as_it_was_encoded_and_damage_is_noticed() -> None:
    builder = ChunkBuilder(chunk_bytes=300)
    for batch in batches(5, 200):
        builder.add(batch, read_header(batch))
    builder.finish()
    index = SegmentIndex(tuple(builder.chunks), (AbortedSpan(7, 0, 3, 4),), ((2, 0), (3, 2)), b"producers")
    tail = encode_tail(index, builder.data_bytes)
    assert decode_tail(tail, builder.data_bytes) == index
    with pytest.raises(ProtocolError):
        decode_tail(tail, builder.data_bytes + 1)
    for at in range(len(tail)):
        broken = bytearray(tail)
        broken[at] ^= 1
        with pytest.raises(ProtocolError):
            decode_tail(bytes(broken), builder.data_bytes)


def test_keys_name_their_topic() -> None:
    assert topic_id_of(manifest_key(TOPIC_ID, 3)) == TOPIC_ID
    assert topic_id_of("topics/zz/topic.json") is None
    assert topic_id_of("other/x") is None
    assert partition_of(manifest_key(TOPIC_ID, 3)) == 3
    assert partition_of(topic_key(TOPIC_ID)) is None
    assert partition_of("topics/zz/3/manifest.json") is None


def test_keys_of_segments_name_their_offsets_and_the_epoch_of_their_writer() -> None:
    assert segment_name(segment_key(TOPIC_ID, 3, 5, 42, 7, "abc-1")) == (5, 42, 7)
    assert segment_name(manifest_key(TOPIC_ID, 3)) is None
    assert segment_name("topics/x/0/odd.segment") is None
