"""A small blocking client for what surrounds a measurement: topics made and deleted, offsets checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from bench.frames import CLIENT_ID, MB_BATCH, PRODUCE_VERSION, produce_request
from bench.load import SOCKET_TIMEOUT_S, connect
from bench.server import Address, BenchError
from forebay.errors import ErrorCode
from forebay.transport.blocking import BlockingConnection
from forebay.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST = -1
TOPIC_READY_S_MAX = 20.0
NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Client(BlockingConnection):
    def __init__(self, address: Address) -> None:
        host, port = address
        super().__init__(connect(address), f"{host}:{port}", client_id=CLIENT_ID, timeout_s=SOCKET_TIMEOUT_S)

    def fileno(self) -> int:
        """For selectors."""
        assert self._socket is not None
        return self._socket.fileno()

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Returns when every partition can be written, which takes Kafka a moment longer than its answer."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
        expect_success(f"creating topic {name}", answer.topics[0].error_code)
        _wait_until(lambda: all(self.end_offset(name, n) == 0 for n in range(partitions)))

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[], topic_names=[name], timeout_ms=30_000)
        answer = self.ask(request, 5)
        expect_success(f"deleting topic {name}", answer.responses[0].error_code)

    def end_offset(self, topic: str, partition: int = 0) -> int | None:
        """Where the next record would go, None while the partition cannot tell."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        wanted = [ListOffsetsTopic(name=topic, partitions=[asked])]
        answer = self.ask(ListOffsetsRequest(replica_id=-1, topics=wanted), 6)
        found: ListOffsetsPartitionResponse = answer.topics[0].partitions[0]
        return found.offset if found.error_code == ErrorCode.NONE else None

    def fill(self, topic: str, batches: int, batch: bytes = MB_BATCH, partition: int = 0) -> None:
        """Produces the same batch again and again, each acknowledged before the next."""
        request = produce_request(topic, batch, partition=partition)
        for _ in range(batches):
            self.ask(request, PRODUCE_VERSION)


def expect_success(doing: str, error_code: int) -> None:
    if error_code != ErrorCode.NONE:
        raise BenchError(f"{doing} failed: {ErrorCode(error_code).name}")


def expect_success_soon(doing: str, attempt: Callable[[], int]) -> None:
    """Tries again while the broker makes its own topics, which Kafka does behind its answers."""
    deadline = time.monotonic() + TOPIC_READY_S_MAX
    while (error_code := attempt()) in NOT_YET and time.monotonic() < deadline:
        time.sleep(0.05)
    expect_success(doing, error_code)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TOPIC_READY_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError("a new topic did not become writable")
        time.sleep(0.02)
