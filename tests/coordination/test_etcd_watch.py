"""How a watch on etcd ends: nothing that broke on the way is left for the event loop to complain of."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest

from forebay.config import broker_config
from forebay.coordination.etcd import watch as watch_module
from forebay.coordination.etcd.store import EtcdStore

KEY = "/forebay/test/watched"


class Dying:
    """Answers a watch and keeps still; asked how it is, it ends the watch and then hangs up."""

    def __init__(self) -> None:
        self._watch: asyncio.StreamWriter | None = None
        self.questions = 0
        self.asked_again = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/v3/watch" in head:
            self._watch = writer
            body = json.dumps({"result": {"created": True}}).encode() + b"\n"
            chunk = b"%x\r\n%s\r\n" % (len(body), body)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
            return
        self.questions += 1
        self.hang_up()
        if self.questions == 1:
            await asyncio.sleep(0.1)  # the watcher hears of the one end before it hears of the other
        else:
            self.asked_again.set()
        writer.transport.abort()

    def hang_up(self) -> None:
        assert self._watch is not None
        self._watch.transport.abort()


async def test_a_stream_that_breaks_while_its_server_is_questioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "SILENCE_S", 0.05)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    dying = Dying()
    server = await asyncio.start_server(dying.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        store = EtcdStore(broker_config({"forebay.cluster": f"etcd://127.0.0.1:{port}/test"}).cluster)
        try:
            watching = asyncio.ensure_future(anext(store.watch(KEY, 1)))
            async with asyncio.timeout(60):
                await dying.asked_again.wait()  # so the first question has had its end
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        finally:
            await store.close()
            dying.hang_up()
    gc.collect()
    assert not complaints
