"""A small blocking client for what surrounds a measurement: topics made and deleted, offsets checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Self, TypeVar

from bench.frames import MB_BATCH, frame_bytes, produce_frame
from bench.load import Address, connect, receive_frame
from bench.server import BenchError
from forebay.errors import ErrorCode
from forebay.wire.fields import Request, Response
from forebay.wire.frames import read_response
from forebay.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
TOPIC_READY_S_MAX = 20.0
R = TypeVar("R", bound=Response)


class Client:
    """One connection, one request at a time."""

    def __init__(self, address: Address) -> None:
        self.sock = connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def call(self, request: Request, version: int, response: type[R]) -> R:
        self.post(request, version)
        return self.read(version, response)

    def post(self, request: Request, version: int) -> None:
        """Ask, and let others ask before the answer is read."""
        self.sock.sendall(frame_bytes(request, version))

    def read(self, version: int, response: type[R]) -> R:
        return read_response(response, version, receive_frame(self.sock)[4:])[1]

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Returns when every partition can be written, which takes Kafka a moment longer than its answer."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        answer = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5, CreateTopicsResponse)
        expect_success(f"creating topic {name}", answer.topics[0].error_code)
        _wait_until(lambda: all(self.end_offset(name, n) == 0 for n in range(partitions)))

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[], topic_names=[name], timeout_ms=30_000)
        answer = self.call(request, 5, DeleteTopicsResponse)
        expect_success(f"deleting topic {name}", answer.responses[0].error_code)

    def end_offset(self, topic: str, partition: int = 0) -> int | None:
        """Where the next record would go, None while the partition cannot tell."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        wanted = [ListOffsetsTopic(name=topic, partitions=[asked])]
        answer = self.call(ListOffsetsRequest(replica_id=-1, topics=wanted), 6, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        return found.offset if found.error_code == ErrorCode.NONE else None

    def fill(self, topic: str, batches: int, batch: bytes = MB_BATCH, partition: int = 0) -> None:
        """Produces the same batch again and again, each acknowledged before the next."""
        frame = produce_frame(topic, batch, partition=partition)
        for _ in range(batches):
            self.sock.sendall(frame)
            receive_frame(self.sock)


def expect_success(doing: str, error_code: int) -> None:
    if error_code != ErrorCode.NONE:
        raise BenchError(f"{doing} failed: {ErrorCode(error_code).name}")


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TOPIC_READY_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError("a new topic did not become writable")
        time.sleep(0.02)
