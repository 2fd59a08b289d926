"""How brokers ask each other: against real brokers, and against peers that answer badly or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from struct import pack

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection, PeerRefused
from forebay.broker.net.sockets import SocketNetwork
from forebay.broker.node import Node
from forebay.coordination.keys import Keys
from forebay.coordination.store import Delete, Put
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.stored.image_text import encode_broker
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Request, Response
from forebay.wire.frames import read_request_header, response_frame
from forebay.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from forebay.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from forebay.wire.messages.fetch import FetchRequest, FetchResponse
from forebay.wire.messages.metadata import MetadataRequest, MetadataResponse
from forebay.wire.messages.produce import ProduceRequest
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_broker import local_broker
from support.clients.wire_client import WireClient, batch, create, fetch, only_partition, produce, values_of

_RESPONSE_BYTES_MAX = 16 * 1024 * 1024

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _open(bootstrap: str, response_bytes_max: int = _RESPONSE_BYTES_MAX) -> PeerConnection:
    host, _, port = bootstrap.rpartition(":")
    return await PeerConnection.open(
        SocketNetwork().connect,
        host,
        int(port),
        client_id="peer",
        response_bytes_max=response_bytes_max,
    )


@contextlib.asynccontextmanager
async def _peer(talk: Talk) -> AsyncIterator[str]:
    """A peer that says what it speaks, and then does as the test wants."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(_answer(await _question(reader), _SPEAKS))
            await talk(reader, writer)

    async with _server(serve) as address:
        yield address


@contextlib.asynccontextmanager
async def _server(serve: Talk) -> AsyncIterator[str]:
    """Where `serve` talks to whoever connects; ends when they have gone."""
    talks = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.current_task())
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async with await asyncio.start_server(on_connect, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"{host}:{port}"
    await asyncio.wait_for(asyncio.gather(*filter(None, talks)), 60)


_SPEAKS = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, low, high in ((0, 99, 100), (3, 0, 9), (18, 0, 0))
    ]
)


async def _question(reader: asyncio.StreamReader) -> int:
    size = int.from_bytes(await reader.readexactly(4))
    header, _ = read_request_header(memoryview(await reader.readexactly(size)))
    return header.correlation_id


def _answer(correlation_id: int, response: Response, version: int = 0) -> bytes:
    parts = response_frame(response.API_KEY, version, correlation_id, response)
    return b"".join(part for part in parts if isinstance(part, bytes | bytearray | memoryview))


async def test_a_broker_answers_what_it_is_asked(broker: BrokerProcess) -> None:
    connection = await _open(broker.bootstrap)
    response = await connection.ask(DescribeClusterRequest())
    assert isinstance(response, DescribeClusterResponse)
    assert [each.broker_id for each in response.brokers] == [response.controller_id]
    connection.close()


async def test_many_requests_are_on_their_way_at_once(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic)
    connection = await _open(broker.bootstrap)
    questions: list[Request] = [MetadataRequest(topics=[]), ApiVersionsRequest(), fetch(topic)] * 30
    versions = [9, 0, 12] * 30
    kinds = [MetadataResponse, ApiVersionsResponse, FetchResponse] * 30
    answers = await asyncio.gather(*map(connection.ask, questions, versions))
    assert [type(answer) for answer in answers] == kinds
    connection.close()


async def test_large_answers_come_whole_and_stay_what_they_are(broker: BrokerProcess, topic: str) -> None:
    """While somebody holds on to an answer, the next must not be received over it."""
    with WireClient(broker.bootstrap) as client:
        create(client, topic)
        for fill in (b"a", b"b", b"c"):
            assert only_partition(client.call(produce(topic, batch(fill * 900_000)), 9)).error_code == 0
    connection = await _open(broker.bootstrap)
    kept = [await connection.ask(fetch(topic, offset), 12) for offset in (0, 1, 2, 0)]
    read = [values_of(only_partition(answer).records) for answer in kept]
    assert [offset for (offset, _), *_ in read] == [0, 1, 2, 0]
    firsts = [value[:1] for ((_, value), *_) in read if value is not None]
    assert firsts == [b"a", b"b", b"c", b"a"]
    connection.close()


async def test_the_memory_of_an_answer_is_used_again_once_nobody_needs_it(
    broker: BrokerProcess, topic: str
) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic)
        client.call(produce(topic, batch(b"x" * 900_000)), 9)
    connection = await _open(broker.bootstrap)
    places = set()
    for _ in range(3):
        records = only_partition(await connection.ask(fetch(topic), 12)).records
        places.add(id(records.obj))
        del records
    assert len(places) == 1
    connection.close()


async def test_a_long_request_leaves_although_the_peer_reads_slowly(
    broker: BrokerProcess, topic: str
) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic, max_message_bytes="20000000")
    connection = await _open(broker.bootstrap)
    data = batch(b"y" * 9_000_000)
    answers = await asyncio.gather(
        *(connection.ask(produce(topic, data), 9) for _ in range(3)), connection.ask(MetadataRequest(), 9)
    )
    assert [only_partition(answer).base_offset for answer in answers[:3]] == [0, 1, 2]
    connection.close()


async def test_the_highest_common_version_is_spoken() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with _peer(talk) as address:
        connection = await _open(address)
        assert connection.version(MetadataRequest) == 9
        for request in (ProduceRequest, FetchRequest):
            with pytest.raises(KafkaError) as refused:
                connection.version(request)
            assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
        connection.close()


async def _ends_with(talk: Talk, *, timeout_s: float = 30.0) -> str:
    """What two who wait are told when the peer behaves like this."""
    async with _peer(talk) as address:
        connection = await _open(address, response_bytes_max=1000)
        errors = await asyncio.gather(
            connection.ask(ApiVersionsRequest(), 0, timeout_s=timeout_s),
            connection.ask(ApiVersionsRequest(), 0),
            return_exceptions=True,
        )
        assert connection.closed
        with pytest.raises(KafkaError):
            await connection.ask(ApiVersionsRequest(), 0)
        first, second = errors
        assert isinstance(first, KafkaError) and isinstance(second, KafkaError)
        assert first.code == second.code == ErrorCode.NETWORK_EXCEPTION
        return first.message


async def test_who_waits_hears_of_a_broken_connection() -> None:
    async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await _question(reader)

    assert "closed" in await _ends_with(hang_up)


async def test_an_answer_that_takes_too_long_breaks_the_connection() -> None:
    async def be_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    assert "no answer within 0.05 s" in await _ends_with(be_silent, timeout_s=0.05)


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(pack(">i", 1001) + b"\0" * 1001, id="larger than accepted"),
        pytest.param(pack(">i", -5), id="a negative size"),
        pytest.param(pack(">ii", 4, 77), id="an answer to no question"),
        pytest.param(pack(">iih", 6, 1, 0), id="an answer cut short"),
        pytest.param(pack(">iih", 600, 1, 0) + b"\xff" * 594, id="an answer that is none"),
    ],
)
async def test_a_peer_that_talks_nonsense_is_left(nonsense: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _question(reader)
        await _question(reader)
        writer.write(nonsense)
        await reader.read()

    assert "the peer sent what is no answer" in await _ends_with(talk)


async def test_answers_may_come_in_any_pieces_and_order() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = [await _question(reader) for _ in range(3)]
        for position, correlation_id in reversed(list(enumerate(asked))):
            answer = ApiVersionsResponse(error_code=position, api_keys=_SPEAKS.api_keys * 100 * position)
            for byte in _answer(correlation_id, answer):
                writer.write(bytes([byte]))
                if byte % 3 == 0:
                    await asyncio.sleep(0)
                    await writer.drain()
        await reader.read()

    async with _peer(talk) as address:
        connection = await _open(address)
        answers = await asyncio.gather(*(connection.ask(ApiVersionsRequest(), 0) for _ in range(3)))
        seen = [
            (answer.error_code, len(answer.api_keys))
            for answer in answers
            if isinstance(answer, ApiVersionsResponse)
        ]
        assert seen == [(0, 0), (1, 300), (2, 600)]
        connection.close()


async def test_who_stops_waiting_does_not_disturb_the_others() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for correlation_id in [await _question(reader) for _ in range(2)]:
            writer.write(_answer(correlation_id, _SPEAKS))
        await reader.read()

    async with _peer(talk) as address:
        connection = await _open(address)
        impatient = asyncio.ensure_future(connection.ask(ApiVersionsRequest(), 0))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await connection.ask(ApiVersionsRequest(), 0) == _SPEAKS
        assert not connection.closed
        connection.close()


async def test_a_peer_that_cannot_be_reached() -> None:
    async with _peer(_answer_one) as address:
        pass
    with pytest.raises(PeerRefused, match="could not be reached") as failed:
        await _open(address)
    assert failed.value.code == ErrorCode.NETWORK_EXCEPTION


# -- by node id ----------------------------------------------------------------------------------------------


def test_brokers_are_found_by_their_registration(tmp_path: Path) -> None:
    """A peer that moves is found again; one that has gone is answered for without waiting."""
    with (
        local_broker(tmp_path / "asks") as asks,
        local_broker(tmp_path / "first") as first,
        local_broker(tmp_path / "second") as second,
    ):

        async def story(broker: Node) -> list[object]:
            seen: list[object] = [await _cluster_id(broker)]
            await _register(broker, first.bootstrap)
            seen.append(await _cluster_id(broker))
            await _register(broker, second.bootstrap)
            seen.append(await _cluster_id(broker))
            await _unregister(broker)
            seen.append(await _cluster_id(broker))
            return seen

        seen = asyncio.run_coroutine_threadsafe(story(asks.node), asks.node.loop).result(60)
        ids = [each.on_loop(lambda broker: broker.data.cluster_id) for each in (first, second)]
        assert seen == [ErrorCode.NETWORK_EXCEPTION, *ids, ErrorCode.NETWORK_EXCEPTION]


def test_who_waits_for_a_broker_that_dies_is_told(tmp_path: Path) -> None:
    with local_broker(tmp_path / "asks") as asks:

        async def story(broker: Node) -> object:
            asked = asyncio.Event()

            async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await _question(reader)
                asked.set()
                await reader.read()

            async with _peer(talk) as address:
                await _register(broker, address)
                waiting = asyncio.ensure_future(_ask(broker))
                await asked.wait()
                await _unregister(broker)
                return await waiting

        told = asyncio.run_coroutine_threadsafe(story(asks.node), asks.node.loop).result(60)
        assert told == ErrorCode.NETWORK_EXCEPTION


def test_a_broker_that_is_not_reached_is_left_alone_for_a_while(tmp_path: Path) -> None:
    """Only a few attempts are made in the time in which a thousand are asked for; then it is found again."""
    with local_broker(tmp_path / "asks") as asks:

        async def story(broker: Node) -> tuple[int, object]:
            refused = 0

            async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                nonlocal refused
                refused += 1

            async with _server(hang_up) as address:
                await _register(broker, address)
                for _ in range(1000):
                    assert await _ask(broker) == ErrorCode.NETWORK_EXCEPTION
            async with _peer(_answer_one) as address:
                await _register(broker, address)
                answer = await _ask(broker)
                await _unregister(broker)
                return refused, answer

        attempts, answer = asyncio.run_coroutine_threadsafe(story(asks.node), asks.node.loop).result(60)
        assert 1 <= attempts < 100
        assert isinstance(answer, MetadataResponse)


async def _answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_answer(await _question(reader), MetadataResponse(), 9))
    await reader.read()


async def _cluster_id(broker: Node) -> object:
    answer = await _ask(broker)
    return answer.cluster_id if isinstance(answer, MetadataResponse) else answer


async def _ask(broker: Node) -> Response | ErrorCode:
    try:
        return await broker.peers.ask(9, MetadataRequest(topics=[]), version=9)
    except KafkaError as error:
        return error.code


async def _register(broker: Node, address: str) -> None:
    host, _, port = address.rpartition(":")
    value = encode_broker(BrokerRegistration(id=9, host=host, port=int(port)))
    done = await broker.store.txn([], [Put(key=_KEY, value=value)])
    await broker.metadata.wait_for(done.revision)


async def _unregister(broker: Node) -> None:
    done = await broker.store.txn([], deletes=[Delete(key=_KEY)])
    await broker.metadata.wait_for(done.revision)


_KEY = Keys().broker(9)
