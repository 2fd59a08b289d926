"""The client's side of a connection, without a connection."""

from __future__ import annotations

import struct
from typing import cast

import pytest

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.fields import Response
from forebay.wire.frames import read_request_header, response_frame
from forebay.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from forebay.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from forebay.wire.messages.metadata import MetadataRequest, MetadataResponse
from forebay.wire.parts import Part
from forebay.wire.session import InFlight, Session


def joined(parts: list[Part]) -> bytes:
    return b"".join(cast("list[bytes]", parts))


def answer(sent: InFlight, response: Response) -> memoryview:
    """What a broker sends, without the length."""
    parts = response_frame(sent.request.API_KEY, sent.version, sent.correlation_id, response)
    return memoryview(joined(parts))[4:]


def new_session(first_id: int = 0) -> Session:
    return Session("host:1", client_id="me", response_bytes_max=1 << 20, first_id=first_id)


def open_session(*served: tuple[int, int, int]) -> Session:
    session = new_session()
    sent, _ = session.send(ApiVersionsRequest())
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in served]
    session.receive(answer(sent, ApiVersionsResponse(api_keys=keys)))
    return session


def test_it_begins_with_the_version_that_every_broker_answers() -> None:
    sent, parts = new_session().send(ApiVersionsRequest())
    header, _ = read_request_header(memoryview(joined(parts))[4:])
    assert (header.api_key, header.api_version, header.client_id) == (18, 0, "me")
    assert sent.version == 0


def test_nothing_else_can_be_asked_before() -> None:
    with pytest.raises(KafkaError) as caught:
        new_session().send(MetadataRequest(topics=[]))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_requests_go_out_in_the_highest_version_of_both() -> None:
    session = open_session((3, 0, 9), (12, 2, 1000))
    assert session.version(MetadataRequest) == 9
    assert session.version(MetadataRequest, 4) == 4
    assert session.version(HeartbeatRequest) == HeartbeatRequest.MAX_VERSION
    with pytest.raises(KafkaError, match="host:1 does not serve Heartbeat"):
        session.version(HeartbeatRequest, 1)


def test_answers_come_in_any_order() -> None:
    session = open_session((3, 0, 9), (12, 0, 4))
    first, _ = session.send(MetadataRequest(topics=[]))
    second, _ = session.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    assert list(session.in_flight) == [first.correlation_id, second.correlation_id]
    assert session.receive(answer(second, HeartbeatResponse(error_code=27)))[1].error_code == 27
    assert session.receive(answer(first, MetadataResponse(brokers=[], topics=[])))[0] is first
    assert not session.in_flight


def test_an_answer_to_nothing_is_refused() -> None:
    session = open_session((3, 0, 9))
    sent, _ = session.send(MetadataRequest(topics=[]))
    frame = answer(sent, MetadataResponse(brokers=[], topics=[]))
    session.receive(frame)
    with pytest.raises(ProtocolError, match="not in flight"):
        session.receive(frame)


def test_a_request_whose_answer_makes_no_sense_stays_in_flight() -> None:
    session = open_session((3, 0, 9))
    sent, _ = session.send(MetadataRequest(topics=[]))
    with pytest.raises(ProtocolError):
        session.receive(memoryview(struct.pack(">i", sent.correlation_id) + b"\xff" * 9))
    assert session.in_flight == {sent.correlation_id: sent}


def test_a_refused_beginning_is_no_beginning() -> None:
    session = new_session()
    sent, _ = session.send(ApiVersionsRequest())
    with pytest.raises(ProtocolError, match="error 35"):
        session.receive(answer(sent, ApiVersionsResponse(error_code=35, api_keys=[])))


@pytest.mark.parametrize("size", [-1, 0, 3, 64 * 1024 + 1])
def test_the_first_answer_is_small(size: int) -> None:
    with pytest.raises(ProtocolError, match="Kafka listener"):
        new_session().frame_size(struct.pack(">i", size))


def test_later_answers_have_the_limit_that_was_given() -> None:
    session = open_session((3, 0, 9))
    assert session.frame_size(b"xx" + struct.pack(">i", 1 << 20), 2) == 1 << 20
    with pytest.raises(ProtocolError, match="1048577 bytes"):
        session.frame_size(struct.pack(">i", (1 << 20) + 1))


def test_correlation_ids_begin_again_before_they_are_negative() -> None:
    session = new_session(2**31 - 1)
    last, _ = session.send(ApiVersionsRequest())
    after, _ = session.send(ApiVersionsRequest())
    assert (last.correlation_id, after.correlation_id) == (2**31 - 1, 0)
