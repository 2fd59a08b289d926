"""One connection to one broker: blocking, with several requests on the way if that is wanted.

A frame is read into a buffer that the connection keeps, and records in an answer are views of it: what was
fetched is copied once, out of the kernel, before it is decoded.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from struct import Struct
from typing import Any

from forebay import __version__
from forebay.errors import ErrorCode, ForebayError, KafkaError, ProtocolError
from forebay.spark.security import Security
from forebay.wire.fields import Request
from forebay.wire.frames import read_response, request_frame
from forebay.wire.messages import api
from forebay.wire.messages.api_versions import OWN_SOFTWARE_NAME, ApiVersionsRequest
from forebay.wire.parts import FileRange, join

FRAME_BYTES_MAX = 1 << 30
BUFFER_BYTES_MIN = 1 << 16

_LENGTH = Struct(">i")
_API_VERSIONS_VERSION = 0  # the one that every broker answers


class BrokerConnection:
    """One broker. `ask` is a question and its answer; `post` and `read` keep several on the way.

    Answers are read into one buffer that is used again: views of records in an answer hold until the next
    answer is read. After an error the connection is closed, since what would come next is anyone's guess.
    Not for several threads at a time.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        security: Security | None = None,
        timeout_s: float = 30.0,
        client_id: str = "forebay-spark",
    ) -> None:
        self.address = f"{host}:{port}"
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._asked: deque[tuple[int, type[Request], int]] = deque()
        self._next_id = 0
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._versions: dict[int, tuple[int, int]] = {}
        self._features: dict[str, int] | None = None
        self._socket: socket.socket | None = _connect(host, port, security or Security(), timeout_s)
        self._learn_versions()

    @property
    def closed(self) -> bool:
        return self._socket is None

    @property
    def unanswered(self) -> int:
        """Requests whose answers have not been read."""
        return len(self._asked)

    @property
    def oldest_unanswered(self) -> type[Request]:
        """The kind of request whose answer is read next."""
        return self._asked[0][1]

    def ask(self, request: Request, version: int | None = None) -> Any:
        """The answer, whose class is the request's counterpart. The version as in `post`."""
        if self._asked:
            raise RuntimeError("answers to earlier requests come first: read them")
        self.post(request, version)
        return self.read()

    def post(self, request: Request, version: int | None = None) -> None:
        """Send a request in the highest version that both sides speak, or in `version` if that is lower."""
        spoken = self.version(type(request), version)
        parts = request_frame(request, spoken, self._next_id, self._client_id)
        try:
            for part in parts:
                self._connected().sendall(join([part]) if isinstance(part, FileRange) else part)
        except OSError as error:
            raise self._lost(error) from error
        self._asked.append((self._next_id, type(request), spoken))
        self._next_id = (self._next_id + 1) & 0x7FFF_FFFF

    def read(self, *, extra_s: float = 0.0) -> Any:
        """The answer to the oldest request that has none, for which it waits `extra_s` longer than usual."""
        if not self._asked:
            raise self._lost(ConnectionError("there is no request to answer: the connection was closed"))
        asked_id, request, version = self._asked.popleft()
        try:
            frame = self._read_frame(self._timeout_s + extra_s)
            answered_id, response = read_response(api(request.API_KEY).response, version, frame)
        except (OSError, ProtocolError) as error:
            raise self._lost(error) from error
        if answered_id != asked_id:
            raise self._lost(ProtocolError(f"answer {answered_id} came where {asked_id} was awaited"))
        return response

    def version(self, request: type[Request], limit: int | None = None) -> int:
        """The version in which a request of this class goes to this broker."""
        known = self._versions.get(request.API_KEY)
        highest = request.MAX_VERSION if limit is None else min(limit, request.MAX_VERSION)
        if known is None or known[0] > highest or known[1] < request.MIN_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} does not speak {api(request.API_KEY).name}"
                f" in version {request.MIN_VERSION} to {highest}",
            )
        return min(known[1], highest)

    def has_feature(self, name: str, level: int = 1) -> bool:
        """Whether the broker says that it can do something that only some brokers can."""
        if self._features is None:
            answer = self.ask(
                ApiVersionsRequest(
                    client_software_name=OWN_SOFTWARE_NAME, client_software_version=__version__
                )
            )
            self._features = {each.name: each.max_version for each in answer.supported_features}
        return self._features.get(name, 0) >= level

    def close(self) -> None:
        connected, self._socket = self._socket, None
        self._asked.clear()
        if connected is not None:
            connected.close()

    # -- bytes ---------------------------------------------------------------------------------------

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("the connection was closed")
        return self._socket

    def _learn_versions(self) -> None:
        self._versions[ApiVersionsRequest.API_KEY] = (_API_VERSIONS_VERSION, _API_VERSIONS_VERSION)
        answer = self.ask(ApiVersionsRequest())
        if answer.error_code:
            raise self._lost(ProtocolError(f"ApiVersions was answered with error {answer.error_code}"))
        self._versions = {known.api_key: (known.min_version, known.max_version) for known in answer.api_keys}

    def _read_frame(self, timeout_s: float) -> memoryview:
        connected = self._connected()
        connected.settimeout(timeout_s)
        (size,) = _LENGTH.unpack(self._fill(connected, _LENGTH.size))
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {size} bytes: is this a Kafka listener, and the right protocol?")
        return self._fill(connected, size)

    def _fill(self, connected: socket.socket, size: int) -> memoryview:
        if size > len(self._buffer):
            # Views of the old one may be held still, so that it cannot grow in place.
            self._buffer = bytearray(size + size // 4)
        view = memoryview(self._buffer)[:size]
        position = 0
        while position < size:
            received = connected.recv_into(view[position:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            position += received
        return view

    def _lost(self, error: Exception) -> KafkaError:
        self.close()
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the broker at {self.address}: {error}")


def _connect(host: str, port: int, security: Security, timeout_s: float) -> socket.socket:
    context = security.context()
    try:
        plain = socket.create_connection((host, port), timeout_s)
    except OSError as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {host}:{port}: {error}") from error
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return plain
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise ForebayError(
            f"the certificate of {host}:{port} was refused: {error.verify_message};"
            " kafka.ssl.truststore.location names the file with the authority to trust"
        ) from error
    except OSError as error:
        plain.close()
        message = f"no TLS with {host}:{port}: {error}; kafka.security.protocol must fit the listener"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, message) from error
