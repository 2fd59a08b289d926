"""A server that has missed an election is not believed, neither in answers nor in a watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from forebay.config import broker_config
from forebay.coordination.etcd.store import EtcdStore
from forebay.coordination.store import Put
from forebay.local.etcd import EtcdCluster

KEY = "/forebay/test/terms"


class Laggard:
    """Answers like an etcd that lives in the past, and counts what it was asked."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        self.paths.append(path)
        header = {"revision": "1", "raft_term": "0"}
        answer = {"result": {"header": header, "created": True}} if "watch" in path else {"header": header}
        body = json.dumps(answer).encode() + b"\n"
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(body), body))
        if "watch" not in path:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()


@pytest.fixture
async def store_and_laggard(one_etcd: EtcdCluster) -> AsyncIterator[tuple[EtcdStore, Laggard]]:
    """A store that knows a server of today, and has just turned to one of the past."""
    laggard = Laggard()
    server = await asyncio.start_server(laggard.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        url = f"etcd://127.0.0.1:{port},{one_etcd.endpoints}/test"
        config = broker_config({"forebay.cluster": url}).cluster
        store = EtcdStore(config)
        try:
            store.gateway.current = 1
            await store.txn(puts=[Put(key=KEY, value=b"today")])
            store.gateway.current = 0
            yield store, laggard
        finally:
            await store.close()


async def test_an_answer_from_the_past_is_asked_again_elsewhere(
    store_and_laggard: tuple[EtcdStore, Laggard],
) -> None:
    store, laggard = store_and_laggard
    item = await store.get(KEY)
    assert item is not None
    assert item.value == b"today"
    assert laggard.paths == ["/v3/kv/range"]


async def test_a_watch_leaves_a_server_of_the_past(store_and_laggard: tuple[EtcdStore, Laggard]) -> None:
    store, laggard = store_and_laggard
    made = await store.get(KEY)
    assert made is not None
    store.gateway.current = 0
    async with asyncio.timeout(60):
        watch = store.watch(KEY, made.mod_revision)
        assert (await anext(watch))[0] == [], "it was interrupted"
        assert [event.kv.value for event in (await anext(watch))[0]] == [b"today"]
    assert laggard.paths == ["/v3/kv/range", "/v3/watch"]
