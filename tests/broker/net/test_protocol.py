"""What every API and version answers, and what becomes of requests that are not served."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.api_keys import OWN_KEYS_FROM, ApiKey
from forebay.wire.frames import read_response
from forebay.wire.messages import API_KEYS, api
from forebay.wire.messages.api_versions import (
    OWN_SOFTWARE_NAME,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from forebay.wire.messages.metadata import MetadataRequest
from support.brokers.broker_process import BrokerProcess, running_broker
from support.brokers.served_apis import ENDPOINTS
from support.clients.wire_client import WireClient, append, batch, create, produce

PRODUCE_KEY = 0
FORMAT_V2_FROM = 3

SERVED = [
    (endpoint.api_key, version)
    for endpoint in ENDPOINTS.values()
    for version in range(endpoint.min_version, endpoint.max_version + 1)
]


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def api_versions(version: int, correlation_id: int = 7) -> bytes:
    """A frame that claims any version, with a body that only its sender understands."""
    body = struct.pack(">hhih", ApiKey.API_VERSIONS, version, correlation_id, 4) + b"test" + b"\0??"
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("version", [5, 6, 99, 32767, -1])
def test_a_version_of_api_versions_that_is_not_served_gets_the_list_in_its_oldest_form(
    client: WireClient, version: int
) -> None:
    client.socket.sendall(api_versions(version, 1234))
    correlation_id, answer = read_response(ApiVersionsResponse, 0, memoryview(client.read_frame()))
    assert correlation_id == 1234
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (ApiKey.API_VERSIONS, 0, 4) in {(a.api_key, a.min_version, a.max_version) for a in answer.api_keys}
    # The client asks again on the same connection, as KIP-511 has it.
    assert client.call(ApiVersionsRequest(), 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(5))
def test_exactly_the_table_of_endpoints_for_clients_is_advertised(client: WireClient, version: int) -> None:
    answer = client.call(ApiVersionsRequest(), version)
    advertised = {(a.api_key, a.min_version, a.max_version) for a in answer.api_keys}
    for_clients = [e for e in ENDPOINTS.values() if e.api_key < OWN_KEYS_FROM]
    assert advertised == {(e.api_key, e.min_version, e.max_version) for e in for_clients}
    assert len(answer.api_keys) == len(for_clients)


def test_our_own_clients_are_told_of_all_endpoints(client: WireClient) -> None:
    answer = client.call(ApiVersionsRequest(client_software_name=OWN_SOFTWARE_NAME), 3)
    assert {each.api_key for each in answer.api_keys} == set(ENDPOINTS)


@pytest.mark.parametrize(("api_key", "version"), SERVED, ids=lambda value: str(value))
def test_every_advertised_version_answers_a_minimal_request(
    client: WireClient, api_key: int, version: int
) -> None:
    request = api(api_key).request()
    if api_key == PRODUCE_KEY:
        request = produce("nowhere", batch()) if version < 13 else produce(bytes(16), batch())
    assert client.call(request, version) is not None  # decoded to the last byte, under the right id
    assert client.call(MetadataRequest(topics=[]), 9).error_code == ErrorCode.NONE


def outside_of_the_table() -> list[tuple[int, int]]:
    served = {
        key: (e.min_version, e.max_version) for key, e in ENDPOINTS.items() if key != ApiKey.API_VERSIONS
    }
    beyond = [(key, high + 1) for key, (_, high) in served.items()]
    before = [(key, low - 1) for key, (low, _) in served.items()]
    unknown = [(key, 0) for key in (4, 7, 1000, -1, 32767)]
    not_served = [(key, api(key).max_version) for key in API_KEYS if key not in ENDPOINTS]
    return beyond + before + unknown + not_served


@pytest.mark.parametrize(("api_key", "version"), outside_of_the_table(), ids=lambda value: str(value))
def test_what_is_not_served_closes_the_connection_and_no_other(
    broker: BrokerProcess, client: WireClient, api_key: int, version: int
) -> None:
    with WireClient(broker.bootstrap) as asker:
        body = struct.pack(">hhih", api_key, version, 1, -1) + bytes(8)
        asker.socket.sendall(struct.pack(">i", len(body)) + body)
        assert asker.is_closed()
    assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(FORMAT_V2_FROM))
def test_the_produce_versions_of_old_formats_are_told_so(
    client: WireClient, topic: str, version: int
) -> None:
    create(client, topic)
    assert append(client, topic, batch(), version).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("client_id", [None, "", "x" * 32767, "tèst"])
def test_any_client_id_is_welcome(client: WireClient, client_id: str | None) -> None:
    client.socket.sendall(client.frame(MetadataRequest(topics=[]), 12, client_id))
    assert client.read().error_code == ErrorCode.NONE


def test_bytes_after_the_end_of_a_request_are_passed_over(client: WireClient) -> None:
    """Some clients send a body of a newer version than they say; what follows it must not be lost over it."""
    body = client.frame(MetadataRequest(topics=[]), 9)[4:] + b"behind"
    client.socket.sendall(struct.pack(">i", len(body)) + body + client.frame(ApiVersionsRequest(), 3))
    assert client.read().error_code == ErrorCode.NONE
    assert client.read().error_code == ErrorCode.NONE


def unserved(api_key: int, version: int) -> bytes:
    body = struct.pack(">hhih", api_key, version, 7, 4) + b"test" + b"\0"
    return struct.pack(">i", len(body)) + body


def test_what_is_not_served_is_named_in_the_log(tmp_path: Path) -> None:
    wanted = [(52, 2), (0, 99), (31_000, 1)]
    with running_broker(tmp_path / "data", "forebay.log.format=json") as broker:
        for api_key, version in wanted:
            with WireClient(broker.bootstrap) as client:
                greeting = ApiVersionsRequest(client_software_name="sarama", client_software_version="1.45")
                assert client.call(greeting, 4).error_code == ErrorCode.NONE
                client.socket.sendall(unserved(api_key, version))
                assert client.is_closed()
        with WireClient(broker.bootstrap) as client:
            client.socket.sendall(unserved(58, 0))
            assert client.is_closed()
        assert broker.stop() == 0
        lines = [json.loads(line) for line in broker.log().splitlines()]
    assert not [line for line in lines if "malformed" in line["message"]]
    found = [line for line in lines if "not served" in line["message"]]
    assert [(line["reason"], line.get("software")) for line in found] == [
        ("Vote in version 2: there is no such API here", "sarama 1.45"),
        ("Produce in version 99: served are 0 to 13", "sarama 1.45"),
        ("API 31000 in version 1: there is no such API here", "sarama 1.45"),
        ("Envelope in version 0: there is no such API here", None),
    ]
