"""Malformed requests by structure: a few of each API and version here, millions in `make siege`."""

from __future__ import annotations

from random import Random

from forebay.errors import ProtocolError
from forebay.wire.codec.compiled import decode
from forebay.wire.fields import Request
from forebay.wire.frames import read_request_header
from forebay.wire.messages.metadata import MetadataRequest
from support.siege.decoding import Outcome, decode_frame, feed, inputs_of
from support.siege.structures import Form, every_request

CASES = every_request()
INPUTS_PER_CASE = 20


def test_malformed_requests_raise_protocol_errors_only_and_cost_little() -> None:
    outcome = Outcome()
    for request, version in CASES:
        chance = Random(f"a/{request.__name__}/{version}")
        feed(inputs_of(chance, request, version, INPUTS_PER_CASE), outcome)
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.inputs == INPUTS_PER_CASE * len(CASES)
    assert 0.05 < outcome.decoded / outcome.inputs < 0.5, "most are malformed, and some are not"


def test_what_is_fed_depends_on_the_seed_only() -> None:
    def some(seed: str) -> list[bytes]:
        return list(inputs_of(Random(seed), MetadataRequest, 12, 50))

    assert some("a") == some("a") != some("b")


def test_a_form_without_changes_is_a_request() -> None:
    for request, version in CASES:
        data = b"".join(Form(Random("whole"), request, version).pieces)
        header, position = read_request_header(memoryview(data))
        assert (header.api_key, header.api_version) == (request.API_KEY, version)
        assert isinstance(decode(request, version, data[position:]), Request)


def test_an_error_of_another_kind_is_noticed() -> None:
    def careless(frame: bytes) -> bool:
        try:
            return decode_frame(frame)
        except ProtocolError as error:
            raise IndexError("past the end") from error

    outcome = Outcome()
    feed(inputs_of(Random("c"), MetadataRequest, 12, 100), outcome, careless)
    assert outcome.failures
    assert all(failure.startswith("IndexError") for failure in outcome.failures)


def test_a_decoder_that_takes_too_long_is_noticed() -> None:
    def slow(frame: bytes) -> bool:
        return sum(number * number for number in range(500_000)) < len(frame)

    outcome = Outcome()
    feed(iter([b"short"]), outcome, slow)
    assert "ms of CPU" in outcome.failures[0]
