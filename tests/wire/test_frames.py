"""Frames: headers of every API and version as kio writes them, and headers that are not well-formed."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from forebay.errors import ProtocolError
from forebay.wire.codec.compiled import decode, encode
from forebay.wire.codec.layout import uvarint
from forebay.wire.frames import (
    EncodedResponse,
    read_request_header,
    read_response,
    request_frame,
    response_frame,
)
from forebay.wire.messages import API_KEYS, Api, api
from forebay.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from forebay.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from forebay.wire.messages.produce import ProduceResponse
from forebay.wire.parts import FileRange, join, size_of
from wire.message_values import every_message, kio_versions, message_id

VERSIONS = [(api(key), v) for key in API_KEYS for v in kio_versions(api(key))]


def kio_header(ours: Api, version: int, kind: str, **values: Any) -> bytes:
    stem = ours.request.__module__.rpartition(".")[2]
    module = import_module(f"kio.schema.{stem}.v{version}.{kind}")
    header = getattr(module, ours.name + kind.capitalize()).__header_schema__
    with io.BytesIO() as buffer:
        entity_writer(header)(buffer, header(**values))
        return buffer.getvalue()


def unframed(parts: list[Any]) -> memoryview:
    """What follows the length, which must be right."""
    whole = join(parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return memoryview(whole)[4:]


def header_bytes(
    api_key: int, api_version: int, correlation_id: int = 1, client_id: bytes = b"\x00\x02me"
) -> bytes:
    numbers = ((api_key, 2), (api_version, 2), (correlation_id, 4))
    return b"".join(number.to_bytes(size, "big", signed=True) for number, size in numbers) + client_id


@pytest.mark.parametrize("client_id", ["rdkafka", "", None, "ü" * 200])
def test_request_headers_are_kios(client_id: str | None) -> None:
    for ours, version in VERSIONS:
        frame = unframed(request_frame(ours.request(), version, 77, client_id))
        expected = kio_header(
            ours, version, "request",
            request_api_key=ours.key, request_api_version=version, correlation_id=77, client_id=client_id,
        )  # fmt: skip
        header, position = read_request_header(frame)
        assert frame[:position] == expected
        assert (header.api_key, header.api_version) == (ours.key, version)
        assert (header.correlation_id, header.client_id) == (77, client_id)
        assert decode(ours.request, version, frame[position:]) == ours.request()


def test_response_headers_are_kios() -> None:
    for ours, version in VERSIONS:
        frame = unframed(response_frame(ours.key, version, -5, ours.response()))
        expected = kio_header(ours, version, "response", correlation_id=-5)
        assert frame == expected + encode(ours.response(), version)
        assert read_response(ours.response, version, frame) == (-5, ours.response())


@pytest.mark.parametrize("case", every_message()[::40], ids=message_id)
def test_a_small_frame_is_one_part(case: tuple[Any, int]) -> None:
    cls, version = case
    value = cls()
    if cls.__name__.endswith("Request"):
        assert len(request_frame(value, version, 1, "me")) == 1
    else:
        assert len(response_frame(cls.API_KEY, version, 1, value)) == 1


def test_a_frame_with_a_file_range_counts_it() -> None:
    class Stored:
        def fileno(self) -> int:
            return -1

        def pread(self, length: int, position: int) -> bytes:
            return b"r" * length

        def cached(self, position: int, length: int) -> bool:
            return True

    partition = PartitionData(partition_index=1, records=FileRange(Stored(), 0, 100_000))
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    parts = response_frame(1, 12, 9, response)
    assert len(parts) == 3
    assert size_of(parts) > 100_000
    _, decoded = read_response(FetchResponse, 12, unframed(parts))
    assert decoded.responses[0].partitions[0].records == b"r" * 100_000


def test_an_api_versions_request_from_the_future_still_has_a_header() -> None:
    data = header_bytes(18, 99) + b"\x00" + b"what comes then is unknown"
    header, position = read_request_header(memoryview(data))
    assert (header.api_key, header.api_version, header.client_id) == (18, 99, "me")
    assert data[position:].startswith(b"what")


@pytest.mark.parametrize(("api_key", "api_version"), [(4, 7), (999, 0), (-1, 3), (0, -1), (17, 2)])
def test_a_header_without_tagged_fields_is_assumed_where_nothing_is_known(
    api_key: int, api_version: int
) -> None:
    header, position = read_request_header(memoryview(header_bytes(api_key, api_version) + b"body"))
    assert (header.api_key, header.api_version, position) == (api_key, api_version, 12)


@pytest.mark.parametrize("count", [1, 99, 100])
def test_as_many_unknown_tagged_fields_as_are_allowed_are_skipped(count: int) -> None:
    tags = bytes([count]) + b"\x07\x00" * count
    _, position = read_request_header(memoryview(header_bytes(18, 3) + tags + b"body"))
    assert position == 12 + len(tags)


@pytest.mark.parametrize("count", [101, 127, 128, 200, 30_000, 261_000])
def test_a_header_with_many_tagged_fields_is_refused_before_they_are_read(count: int) -> None:
    tags = uvarint(count) + b"\x00\x00" * count
    with pytest.raises(ProtocolError, match=f"{count} unknown tagged fields"):
        read_request_header(memoryview(header_bytes(18, 3) + tags + b"body"))
    with pytest.raises(ProtocolError, match=f"{count} unknown tagged fields"):
        decode(ApiVersionsRequest, 3, memoryview(b"\x01\x01" + tags))


def test_more_tagged_fields_than_the_bytes_could_hold_are_refused() -> None:
    with pytest.raises(ProtocolError, match="50 unknown tagged fields"):
        read_request_header(memoryview(header_bytes(18, 3) + b"\x32" + b"\x00\x00" * 49))


def test_a_response_that_was_encoded_once_has_the_correlation_id_of_each_request() -> None:
    response = ApiVersionsResponse(error_code=35)
    encoded = EncodedResponse(3, response)
    for correlation_id in (1, -5, 2**31 - 1):
        assert encoded.frame(correlation_id) == join(response_frame(18, 3, correlation_id, response))


def test_unknown_tagged_fields_of_headers_are_skipped() -> None:
    tags = b"\x02\x00\x01a\x81\x01\x03bcd"
    _, position = read_request_header(memoryview(header_bytes(18, 3) + tags + b"body"))
    assert position == 12 + len(tags)

    body = encode(ProduceResponse(throttle_time_ms=4), 9)
    frame = memoryview(b"\x00\x00\x00\x07" + tags + body)
    assert read_response(ProduceResponse, 9, frame) == (7, ProduceResponse(throttle_time_ms=4))


def test_the_response_to_api_versions_has_the_oldest_header() -> None:
    frame = unframed(response_frame(18, 4, 3, ApiVersionsResponse(error_code=35)))
    assert frame == b"\x00\x00\x00\x03" + encode(ApiVersionsResponse(error_code=35), 4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        header_bytes(18, 3)[:9],
        header_bytes(18, 0, client_id=b"\x00\x09me"),
        header_bytes(18, 0, client_id=b"\xff\xfe"),
        header_bytes(18, 0, client_id=b"\x00\x01\xff"),
        header_bytes(18, 3),
        header_bytes(18, 3) + b"\x01\x00\x05",
        header_bytes(18, 3) + b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_malformed_request_headers(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"header|varint"):
        read_request_header(memoryview(data))


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x07", b"\x00\x00\x00\x07\x01\x00\x05"])
def test_malformed_response_headers(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="header"):
        read_response(ProduceResponse, 9, memoryview(data))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_a_protocol_error(data: bytes) -> None:
    try:
        _, position = read_request_header(memoryview(data))
    except ProtocolError:
        return
    assert 10 <= position <= len(data)


def test_a_response_must_be_of_its_api() -> None:
    with pytest.raises(AssertionError):
        response_frame(1, 9, 1, ProduceResponse())


def test_headers_print_what_they_hold() -> None:
    header, _ = read_request_header(unframed(request_frame(ApiVersionsRequest(), 0, 5, "me")))
    assert repr(header) == "RequestHeader(api_key=18, api_version=0, correlation_id=5, client_id='me')"
