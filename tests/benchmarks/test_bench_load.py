"""The load generators against the bare servers: every request is answered, counted and paid for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench.bare import CrcWriter
from bench.frames import B200_BATCH, deep_produce_stream, fetch_frame, produce_frame, produce_stream
from bench.latency import round_trips
from bench.load import Stream, connect, receive_frame, run_load
from bench.server import BenchError, Server, bare_server
from fastcrc import crc32

from forebay.wire.batch import crc_ok, split
from forebay.wire.codec.compiled import decode
from forebay.wire.frames import read_request_header
from forebay.wire.messages.fetch import FetchRequest
from forebay.wire.messages.produce import ProduceRequest


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Server]:
    with bare_server("echo", tmp_path) as server:
        yield server


def test_echo_returns_each_frame_however_it_is_cut(echo: Server) -> None:
    frames = [struct.pack(">i", size) + bytes([size % 256]) * size for size in (0, 1, 300, 70_000)]
    data = b"".join(frames)
    with connect(echo.address) as sock:
        for cut in (1, 5, 400, len(data) - 1):
            sock.sendall(data[:cut])
            sock.sendall(data[cut:])
            assert [bytes(receive_frame(sock)) for _ in frames] == frames


def test_the_write_loop_stores_what_it_acknowledges(tmp_path: Path) -> None:
    with bare_server("crc-write", tmp_path) as server, connect(server.address) as sock:
        frame = struct.pack(">i", 9) + b"123456789"
        sock.sendall(frame * 3)
        for _ in range(3):
            assert bytes(receive_frame(sock)) == struct.pack(">iI", 4, crc32.iscsi(b"123456789"))


def test_a_crc_covers_the_frame_without_its_length(tmp_path: Path) -> None:
    answer = CrcWriter(str(tmp_path / "file"))
    assert answer(memoryview(b"\0\0\0\x09123456789")) == struct.pack(">iI", 4, 0xE3069283)


def test_load_stops_at_its_bound_and_counts_all_connections(echo: Server) -> None:
    stream = produce_stream("t", B200_BATCH, seconds=30.0, bytes_max=len(B200_BATCH) * 1000)
    measure = run_load(echo, [stream, stream])
    assert measure.requests == 2000
    assert measure.payload_bytes == 2000 * len(B200_BATCH)
    assert 0 < measure.seconds < 30


def test_deep_load_counts_requests_and_not_sends(echo: Server) -> None:
    stream = deep_produce_stream("t", B200_BATCH, seconds=30.0, bytes_max=1_000_000)
    measure = run_load(echo, [stream])
    assert stream.requests_per_blob > 100
    assert measure.requests == stream.blobs_max * stream.requests_per_blob


def test_replies_unlike_the_first_are_an_error(echo: Server) -> None:
    small, large = struct.pack(">i", 4) + bytes(4), struct.pack(">i", 9) + bytes(9)
    stream = Stream(blobs=[small, large], payload_bytes_per_blob=1, window=1, seconds=30.0, blobs_max=2)
    with pytest.raises(BenchError, match="not like the first"):
        run_load(echo, [stream])
    assert run_load(echo, [replace(stream, blobs=[small])]).requests == 2


def test_a_server_that_does_not_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="usage: python -m bench"):
        bare_server("nonsense", tmp_path)


def test_round_trips_are_ordered_percentiles(echo: Server) -> None:
    latency = round_trips(echo.address, struct.pack(">i", 4) + bytes(4), 200)
    assert 0 < latency.p50_us <= latency.p99_us <= latency.p999_us


def test_prebuilt_requests_are_valid_requests() -> None:
    produce = memoryview(produce_frame("orders", B200_BATCH, partition=3))
    header, position = read_request_header(produce[4:])
    request = decode(ProduceRequest, header.api_version, produce[4 + position :])
    data = request.topic_data[0].partition_data[0]
    assert (request.acks, request.topic_data[0].name, data.index) == (1, "orders", 3)
    assert data.records is not None
    assert len(split(data.records)) == 1 and crc_ok(data.records, 0, len(data.records))

    fetch = memoryview(fetch_frame("orders", 42, max_bytes=1000))
    header, position = read_request_header(fetch[4:])
    wanted = decode(FetchRequest, header.api_version, fetch[4 + position :])
    assert wanted.topics[0].partitions[0].fetch_offset == 42
