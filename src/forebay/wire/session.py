"""The client's side of one connection, without I/O: versions, correlation ids, and requests in flight.

A shell moves the bytes: the blocking one (`transport/blocking.py`), the event loop's
(`broker/cluster/peers/peer_connection.py`), which also runs in the simulator, and those of tests and
benchmarks. A shell sends what `send` returns, asks `frame_size` for the size of a frame, and passes whole
frames to `receive`.

A session begins with ApiVersions in version 0, which every broker answers. Its answer says which versions the
broker serves, and from then on each request goes out in the highest version that both sides know. A later
answer, to a client that has identified itself, may list more.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.fields import Request
from forebay.wire.frames import read_response, request_frame
from forebay.wire.messages import api
from forebay.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from forebay.wire.parts import Part

LENGTH_BYTES = 4
_LENGTH = Struct(">i")
_CORRELATION_ID_LIMIT = 2**31
_VERSIONS_BYTES_MAX = 64 * 1024
"""The limit of the first answer. A server that is not a broker may send any length as its first bytes."""


class InFlight(NamedTuple):
    """A request without an answer yet."""

    correlation_id: int
    request: type[Request]
    version: int


class Session:
    def __init__(
        self, peer: str, *, client_id: str | None, response_bytes_max: int, first_id: int = 0
    ) -> None:
        """`peer` names the broker in error messages; `first_id` is the first correlation id."""
        self.peer = peer
        self.client_id = client_id
        self.in_flight: dict[int, InFlight] = {}
        """By correlation id, the oldest first."""
        self._response_bytes_max = response_bytes_max
        self._next_id = first_id
        self._versions = {ApiVersionsRequest.API_KEY: (0, 0)}
        self._versions_known = False

    # -- sending ---------------------------------------------------------------------------------------

    def version(self, request: type[Request], limit: int | None = None) -> int:
        """The highest version of an API that both sides know, at most `limit`; raises KafkaError."""
        served_min, served_max = self._versions.get(request.API_KEY, (0, -1))
        highest = request.MAX_VERSION if limit is None else min(limit, request.MAX_VERSION)
        version = min(served_max, highest)
        if version < max(served_min, request.MIN_VERSION):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.peer} does not serve {api(request.API_KEY).name} in any of the versions"
                f" {request.MIN_VERSION} to {highest}; upgrade the older side",
            )
        return version

    def send(self, request: Request, version: int | None = None) -> tuple[InFlight, list[Part]]:
        """The frame of a request, which is in flight from now on. Without a version, the highest is taken."""
        if version is None:
            version = self.version(type(request))
        sent = InFlight(self._next_id, type(request), version)
        parts = request_frame(request, version, sent.correlation_id, self.client_id)
        self._next_id = (self._next_id + 1) % _CORRELATION_ID_LIMIT
        self.in_flight[sent.correlation_id] = sent
        return sent, parts

    # -- receiving -------------------------------------------------------------------------------------

    def frame_size(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> int:
        """The number of bytes after the length at this position; raises ProtocolError."""
        size: int = _LENGTH.unpack_from(buffer, position)[0]
        limit = self._response_bytes_max
        if not self._versions_known:
            limit = min(limit, _VERSIONS_BYTES_MAX)
        if not LENGTH_BYTES <= size <= limit:
            raise ProtocolError(
                f"a frame of {size} bytes where {LENGTH_BYTES} to {limit} are accepted:"
                " is this a Kafka listener, and the right security protocol?"
            )
        return size

    def receive(self, frame: memoryview) -> tuple[InFlight, Any]:
        """The request and its answer. Raises ProtocolError."""
        (correlation_id,) = _LENGTH.unpack_from(frame)
        sent = self.in_flight.get(correlation_id)
        if sent is None:
            raise ProtocolError(f"an answer has the correlation id {correlation_id}, which is not in flight")
        _, response = read_response(api(sent.request.API_KEY).response, sent.version, frame)
        del self.in_flight[correlation_id]
        if isinstance(response, ApiVersionsResponse) and not (self._versions_known and response.error_code):
            self._learn_versions(response)
        return sent, response

    def _learn_versions(self, response: ApiVersionsResponse) -> None:
        if response.error_code:
            raise ProtocolError(f"ApiVersions was answered with error {response.error_code}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self._versions_known = True
