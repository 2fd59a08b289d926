"""A client for tests: a session on a socket that the test may use itself, to send and read any bytes.

`call` is a request and its response. `post` and `read` separate sending from reading, so that a test decides
what is on the wire and when. The session does not ask for the broker's versions: a test names the version of
each request, even one that the broker does not serve. The functions below make the requests that most tests
need.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from forebay.wire.batch import build_batch, records, split
from forebay.wire.fields import Request
from forebay.wire.frames import request_frame
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from forebay.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from forebay.wire.parts import join
from forebay.wire.records import Record
from forebay.wire.session import LENGTH_BYTES, InFlight, Session

TIMEOUT_SECONDS = 120.0
CLIENT_ID = "test"
RESPONSE_BYTES_MAX = 1 << 30
PRODUCE = 9
FETCH = 12
LIST_OFFSETS = 7
CREATE_TOPICS = 7
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


class WireClient:
    def __init__(
        self,
        bootstrap: str,
        *,
        receive_buffer: int | None = None,
        timeout_s: float = TIMEOUT_SECONDS,
        tls: ssl.SSLContext | None = None,
        source: str | None = None,
    ) -> None:
        """`source`: the address of this machine that it comes from."""
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source is not None:
            self.socket.bind((source, 0))
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect((host, int(port)))
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        except OSError:
            self.socket.close()
            raise
        self._session = Session(bootstrap, client_id=CLIENT_ID, response_bytes_max=RESPONSE_BYTES_MAX)

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    @property
    def unanswered(self) -> list[InFlight]:
        """Requests whose responses have not been read, the oldest first."""
        return list(self._session.in_flight.values())

    def frame(self, request: Request, version: int, client_id: str | None = CLIENT_ID) -> bytes:
        """The bytes of a request whose response `read` is to expect; the caller sends them."""
        self._session.client_id = client_id
        sent, parts = self._session.send(request, version)
        if isinstance(request, ProduceRequest) and request.acks == 0:
            del self._session.in_flight[sent.correlation_id]
        return join(parts)

    def post(self, request: Request, version: int) -> None:
        self.socket.sendall(self.frame(request, version))

    def read(self) -> Any:
        """The response to the oldest request that has none yet."""
        return self.decode(self.read_frame())

    def decode(self, frame: bytes) -> Any:
        oldest = next(iter(self._session.in_flight.values()))
        sent, response = self._session.receive(memoryview(frame))
        assert sent is oldest, (
            f"response {sent.correlation_id} came where {oldest.correlation_id} was awaited"
        )
        return response

    def read_frame(self) -> bytes:
        # Not `Session.frame_size`, which accepts small frames only until it knows the versions.
        return self.receive(int.from_bytes(self.receive(LENGTH_BYTES), "big"))

    def call(self, request: Request, version: int) -> Any:
        self.post(request, version)
        return self.read()

    def receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self.socket.recv(size - len(received))
            if not chunk:
                raise ConnectionResetError("the broker closed the connection")
            received += chunk
        return bytes(received)

    def is_closed(self) -> bool:
        """Wait for the broker to close the connection; False when it says something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def read_to_end(self) -> bytes:
        """Everything the broker still says before it closes the connection."""
        received = bytearray()
        with contextlib.suppress(ConnectionError):
            while chunk := self.socket.recv(65536):
                received += chunk
        return bytes(received)

    def is_silent(self) -> bool:
        """Whether the broker had its chance to say something, and did not: neither an answer nor the end.

        What this client has sent is in the broker's hands before the first question of another one is, so the
        broker has dealt with it when it answers the second.
        """
        host, port = self.socket.getpeername()[:2]
        with WireClient(f"{host}:{port}") as other:
            for _ in range(2):
                other.call(ApiVersionsRequest(), 0)
        poll = select.poll()  # not select, which knows the first thousand descriptors only
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)


def frame(request: Request, version: int) -> bytes:
    """The bytes of a request outside of any session: to be cut, mutated or sent again and again."""
    return join(request_frame(request, version, correlation_id=7, client_id=CLIENT_ID))


# -- batches -----------------------------------------------------------------------------------------------


def batch(
    *values: bytes,
    codec: int = 0,
    timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    now = int(time.time() * 1000) if timestamp is None else timestamp
    return bytes(
        build_batch(
            [Record(n, now + n, b"key", value) for n, value in enumerate(values or (b"value",))],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            attributes=attributes,
        )
    )


def values_of(data: bytes | memoryview | None) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record in what a fetch gave."""
    buffer = memoryview(data or b"")
    return [
        (record.offset, record.value)
        for position, header in split(buffer)
        if not header.is_control or header.is_transactional  # not what brokers note for themselves
        for record in records(buffer[position : position + header.size])
    ]


# -- requests ----------------------------------------------------------------------------------------------


def produce(
    topic: str | bytes,
    data: bytes | None,
    *,
    partition: int = 0,
    acks: int = 1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """The topic is a name, or an id for version 13."""
    wanted = TopicProduceData(
        partition_data=[
            PartitionProduceData(index=partition, records=None if data is None else memoryview(data))
        ]
    )
    if isinstance(topic, bytes):
        wanted.topic_id = topic
    else:
        wanted.name = topic
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=60_000, topic_data=[wanted]
    )


def fetch(
    topic: str | bytes,
    offset: int = 0,
    *,
    partitions: Sequence[int] = (0,),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 25,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    wanted = FetchTopic(
        partitions=[
            FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=leader_epoch,
            )
            for partition in partitions
        ]
    )
    if isinstance(topic, bytes):
        wanted.topic_id = topic
    else:
        wanted.topic = topic
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[wanted] if partitions else [],
    )


def list_offsets(
    topic: str, timestamp: int, *, partition: int = 0, leader_epoch: int = -1
) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch
    )
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])


def create_topic(name: str, partitions: int = 1, **configs: str) -> CreateTopicsRequest:
    wanted = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=wanted)],
        timeout_ms=10_000,
    )


# -- requests and what they return --------------------------------------------------------------------------


def create(client: WireClient, name: str, partitions: int = 1, **configs: str) -> bytes:
    """The id of the topic made."""
    (made,) = client.call(create_topic(name, partitions, **configs), CREATE_TOPICS).topics
    assert made.error_code == 0, made.error_message
    topic_id: bytes = made.topic_id
    return topic_id


def only_partition(response: Any) -> Any:
    """What a Produce or Fetch response says of its one partition."""
    (topic,) = response.responses
    (partition,) = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    return partition


def append(client: WireClient, topic: str | bytes, data: bytes, version: int = PRODUCE, **how: Any) -> Any:
    return only_partition(client.call(produce(topic, data, **how), version))


def read(client: WireClient, topic: str | bytes, offset: int = 0, version: int = FETCH, **how: Any) -> Any:
    return only_partition(client.call(fetch(topic, offset, **how), version))


def read_all(client: WireClient, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """Everything in a partition, however many fetches it takes."""
    offset = offset_at(client, topic, EARLIEST, partition)
    end = offset_at(client, topic, LATEST, partition)
    found: list[tuple[int, bytes | None]] = []
    while offset < end:
        data = read(client, topic, offset, partitions=(partition,), partition_max_bytes=1 << 24)
        assert data.error_code == 0, data.error_code
        batches = split(memoryview(data.records or b""))
        assert batches, f"nothing at offset {offset}, though the log ends at {end}"
        found += [item for item in values_of(data.records) if item[0] >= offset]
        offset = batches[-1][1].next_offset
    return found


def offset_at(client: WireClient, topic: str, timestamp: int, partition: int = 0) -> int:
    (found,) = client.call(list_offsets(topic, timestamp, partition=partition), LIST_OFFSETS).topics
    assert found.partitions[0].error_code == 0, found.partitions[0].error_code
    offset: int = found.partitions[0].offset
    return offset
