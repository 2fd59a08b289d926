"""A client of the simulated cluster: finds leaders and coordinators, asks them, forgets them when they fail.

It speaks the wire protocol over the simulated network, on connections of the kind that brokers have to each
other, in the versions of its dialect and with its manners (dialects.py). It does not retry: the actors of the
workload decide that, because they know what a lost answer means for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode, KafkaError
from forebay.sim.actors.dialects import MODERN, POLITE, Dialect, Manners
from forebay.sim.invariants.throttling import Waits
from forebay.sim.world.process import SimProcess
from forebay.wire.fields import Request, Response
from forebay.wire.frames import request_frame
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from forebay.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from forebay.wire.parts import FileRange

R = TypeVar("R", bound=Response)

GROUP = 0
TRANSACTION = 1

_CONNECTION_S = 6.0
"""An answer that takes longer ends the connection."""
_RESPONSE_BYTES_MAX = 16 * 1024 * 1024
_FETCH_BY_ID_FROM = 13
_COORDINATORS_FROM = 4
_EARLIEST_TIMESTAMP = -2
_LATEST_TIMESTAMP = -1
_FETCH_MAX_BYTES = 64 * 1024


class Failed(Exception):
    """No answer, or a retriable error: the request may have been carried out or not."""

    def __init__(self, reason: str, code: ErrorCode | None = None) -> None:
        """`code`: the error of the answer, if there was one."""
        super().__init__(reason)
        self.code = code


class Refused(Exception):
    """The broker refused the request, and a retry would not help."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)


def check(code: int) -> None:
    """Raise the exception for an error code of a response."""
    if code != ErrorCode.NONE:
        known = ErrorCode(code)
        raise Failed(known.name, known) if known.retriable else Refused(code)


class Client:
    def __init__(
        self,
        process: SimProcess,
        name: str,
        bootstrap: Sequence[Address],
        dialect: Dialect = MODERN,
        manners: Manners = POLITE,
    ) -> None:
        self.loop = process.loop
        self.name = name
        self.dialect = dialect
        self.manners = manners
        self.on_acknowledged: Callable[[str, float], None] = lambda _host, _asked_at: None
        """Called with the host that acknowledged a batch, and with the time at which the batch was sent."""
        self.waits: Waits | None = None
        """The model of throttling waits that brokers told it."""
        self.creates_topics = False
        """True if it asks for missing topics to be created, as producers on librdkafka do."""
        self._process = process
        self._bootstrap = list(bootstrap)
        self._chance = process.loop.world.chance(f"client/{name}")
        self._connections: dict[Address, PeerConnection] = {}
        self._opening: dict[Address, asyncio.Task[PeerConnection]] = {}
        self._leaders: dict[TopicPartition, tuple[Address, int]] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    @property
    def brokers(self) -> list[Address]:
        return self._bootstrap

    # -- asking --------------------------------------------------------------------------------------------

    async def ask(
        self, address: Address, request: Request, response: type[R], version: int | None = None
    ) -> R:
        try:
            async with asyncio.timeout(self.manners.patience_s):
                connection = await self._connection(address)
                asked = None if self.waits is None else self.waits.asked(address[0], connection)
                answer = await connection.ask(request, version, timeout_s=_CONNECTION_S)
        except KafkaError as error:
            raise Failed(str(error)) from None
        except TimeoutError:
            if self._chance.random() < self.manners.reconnect_chance:
                self._connections.pop(address, None)  # answers still arrive on it, and are not read
            raise Failed(f"{address[0]} did not answer in time") from None
        assert isinstance(answer, response)
        if self.waits is not None and asked is not None:
            self.waits.answered(asked, answer)
        return answer

    async def ask_any(self, request: Request, response: type[R], version: int | None = None) -> R:
        return await self.ask(self._chance.choice(self._bootstrap), request, response, version)

    async def _connection(self, address: Address) -> PeerConnection:
        """The connection to that broker. Callers that come while it is being opened wait for it, in order."""
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        opening = self._opening.get(address)
        if opening is None:
            opening = self._opening[address] = self.loop.create_task(self._open(address))
            opening.add_done_callback(lambda task: self._opened(address, task))
        return await asyncio.shield(opening)

    def _opened(self, address: Address, opening: asyncio.Task[PeerConnection]) -> None:
        del self._opening[address]
        if not opening.cancelled():
            opening.exception()  # marks it as retrieved, even if no task waits for it

    async def _open(self, address: Address) -> PeerConnection:
        connection = self._connections[address] = await PeerConnection.open(
            self._process.network.connect,
            *address,
            client_id=self.name,
            response_bytes_max=_RESPONSE_BYTES_MAX,
        )
        if self.dialect.software:
            hello = ApiVersionsRequest(client_software_name=self.dialect.software)
            await connection.ask(hello, timeout_s=_CONNECTION_S)
        return connection

    def hang_up(self, address: Address) -> None:
        """Close the connection to a broker."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def reconnect(self, address: Address) -> None:
        """Use another connection from now on; the old one stays open, as if nobody had noticed."""
        self._connections.pop(address, None)

    # -- leaders and coordinators ----------------------------------------------------------------------------

    async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=self.creates_topics,
        )
        found = await self.ask_any(request, MetadataResponse, self.dialect.metadata)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
        for topic in found.topics:
            self._topic_ids[topic.name or ""] = topic.topic_id
            for partition in topic.partitions:
                leader = addresses.get(partition.leader_id)
                at = (topic.name or "", partition.partition_index)
                # A broker with old metadata must not lead back to an earlier leader.
                if leader is not None and partition.leader_epoch >= self._epochs.get(at, -1):
                    self._epochs[at] = partition.leader_epoch
                    self._leaders[at] = leader, partition.leader_epoch
        return found

    async def leader(self, at: TopicPartition) -> tuple[Address, int]:
        if at not in self._leaders:
            await self.metadata([at[0]])
        if at not in self._leaders:
            raise Failed(f"{at[0]}-{at[1]} has no leader")
        return self._leaders[at]

    async def reach_leader(self, at: TopicPartition) -> None:
        """Connect to the leader, so that several requests for it can be sent one behind the other."""
        address, _ = await self.leader(at)
        try:
            async with asyncio.timeout(self.manners.patience_s):
                await self._connection(address)
        except (KafkaError, TimeoutError) as error:
            self.forget(at)
            raise Failed(str(error)) from None

    async def topic_id(self, topic: str) -> bytes:
        if topic not in self._topic_ids:
            await self.metadata([topic])
        return self._topic_ids[topic]

    async def coordinator(self, kind: int, key: str) -> Address:
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        version = self.dialect.find_coordinator
        if kind != GROUP:
            version = max(version, 1)
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        answer = await self.ask_any(request, FindCoordinatorResponse, version)
        found = answer.coordinators[0] if version >= _COORDINATORS_FROM else answer
        check(found.error_code)
        address = self._coordinators[kind, key] = (found.host, found.port)
        return address

    async def ask_coordinator(
        self, kind: int, key: str, request: Request, response: type[R], version: int | None = None
    ) -> R:
        return await self.ask(await self.coordinator(kind, key), request, response, version)

    def forget(self, at: TopicPartition) -> None:
        if self._chance.random() >= self.manners.stubborn_chance:
            self._leaders.pop(at, None)

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    # -- messages ------------------------------------------------------------------------------------------

    async def produce(
        self, at: TopicPartition, batch: bytes, *, acks: int, transactional_id: str | None = None
    ) -> int:
        """Send a batch; returns its base offset once it is acknowledged."""
        address, _ = await self.leader(at)
        request = self._produce_request(at, batch, acks, transactional_id)
        asked_at = self.loop.time()
        try:
            response = await self.ask(address, request, ProduceResponse, self.dialect.produce)
        except Failed:
            self.forget(at)
            raise
        found: PartitionProduceResponse = response.responses[0].partition_responses[0]
        if found.error_code != ErrorCode.NONE:
            self.forget(at)
        check(found.error_code)
        self.on_acknowledged(address[0], asked_at)
        return found.base_offset

    async def produce_and_forget(self, at: TopicPartition, batch: bytes) -> None:
        """Send with acks=0: no answer comes, whatever happens."""
        address, _ = await self.leader(at)
        try:
            stream = await self._process.network.connect(*address)
            request = self._produce_request(at, batch, 0, None)
            for part in request_frame(request, self.dialect.produce, 0, self.name):
                assert not isinstance(part, FileRange)
                stream.send(part)
            stream.close()
        except OSError as error:
            self.forget(at)
            raise Failed(str(error)) from None

    async def send_bytes(self, data: bytes) -> None:
        """Send any bytes to any broker, and do not wait for an answer."""
        try:
            stream = await self._process.network.connect(*self._chance.choice(self._bootstrap))
            if data:
                stream.send(data)
            self.loop.call_later(_CONNECTION_S, stream.close)
        except OSError as error:
            raise Failed(str(error)) from None

    async def fetch(
        self, at: TopicPartition, offset: int, *, committed: bool, max_wait_ms: int = 500
    ) -> PartitionData:
        address, _ = await self.leader(at)
        found = await self.fetch_from(address, {at: offset}, committed=committed, max_wait_ms=max_wait_ms)
        check(found[at].error_code)
        return found[at]

    async def fetch_from(
        self, address: Address, offsets: Mapping[TopicPartition, int], *, committed: bool, max_wait_ms: int
    ) -> dict[TopicPartition, PartitionData]:
        """Fetch from a broker the partitions that it was known to lead; each may be just an error."""
        topics: dict[str, list[FetchPartition]] = {}
        for at, offset in offsets.items():
            topics.setdefault(at[0], []).append(self._wanted(at, offset))
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_MAX_BYTES,
            isolation_level=int(committed),
            topics=[
                FetchTopic(topic=name, topic_id=self._topic_ids[name], partitions=wanted)
                for name, wanted in topics.items()
            ],
        )
        try:
            response = await self.ask(address, request, FetchResponse, self.dialect.fetch)
            check(response.error_code)
        except (Failed, Refused):
            for at in offsets:
                self.forget(at)
            raise
        if response.throttle_time_ms and not response.responses:
            raise Failed("it is over its quota")
        names = {self._topic_ids[name]: name for name in topics}
        by_id = self.dialect.fetch >= _FETCH_BY_ID_FROM
        found = {
            (names[topic.topic_id] if by_id else topic.topic, each.partition_index): each
            for topic in response.responses
            for each in topic.partitions
        }
        for at, each in found.items():
            if each.error_code != ErrorCode.NONE:
                self.forget(at)
        return found

    def _wanted(self, at: TopicPartition, offset: int) -> FetchPartition:
        return FetchPartition(
            partition=at[1],
            current_leader_epoch=self._epochs[at],
            fetch_offset=offset,
            partition_max_bytes=_FETCH_MAX_BYTES,
        )

    async def earliest(self, at: TopicPartition) -> int:
        """The log start offset of a partition."""
        return await self._offset_at(at, _EARLIEST_TIMESTAMP)

    async def latest(self, at: TopicPartition) -> int:
        """The end of what consumers may read of a partition."""
        return await self._offset_at(at, _LATEST_TIMESTAMP)

    async def _offset_at(self, at: TopicPartition, timestamp: int) -> int:
        address, epoch = await self.leader(at)
        partition = ListOffsetsPartition(
            partition_index=at[1], current_leader_epoch=epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=at[0], partitions=[partition])]
        )
        try:
            response = await self.ask(address, request, ListOffsetsResponse, self.dialect.list_offsets)
            found = response.topics[0].partitions[0]
            check(found.error_code)
        except (Failed, Refused):
            self.forget(at)
            raise
        return found.offset

    def _produce_request(
        self, at: TopicPartition, batch: bytes, acks: int, transactional_id: str | None
    ) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=4000,
            topic_data=[
                TopicProduceData(
                    name=at[0],
                    topic_id=self._topic_ids[at[0]],
                    partition_data=[PartitionProduceData(index=at[1], records=memoryview(batch))],
                )
            ],
        )
