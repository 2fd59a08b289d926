"""A broker on an event loop of its own, in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from forebay.broker.broker import Broker
from forebay.broker.node import Node
from forebay.broker.ports import Address
from forebay.config import BrokerConfig, broker_config
from forebay.local.settings import BrokerFailed

T = TypeVar("T")

_SECONDS_MAX = 120.0
"""How long starting, stopping and a call on the loop may take: far more than they need."""


class BrokerThread:
    """`make` builds the broker, inside its event loop; give your own to put in another clock or disk."""

    def __init__(self, make: Callable[[BrokerConfig], Broker] = Broker) -> None:
        self._make = make
        self._broker: Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._address: Address | None = None
        self._failure: BaseException | None = None

    @property
    def node(self) -> Node:
        """Its parts belong to its loop: look at them through `on_loop`."""
        assert self._broker is not None and self._broker.node is not None, "start first"
        return self._broker.node

    def start(self, settings: Mapping[str, str]) -> str:
        config = broker_config(dict(settings))
        # A daemon: a test that forgot to stop its broker must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._main, args=(config,), name="forebay-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(_SECONDS_MAX):
            raise BrokerFailed(f"the broker was not ready within {_SECONDS_MAX:.0f} s")
        if self._address is None:
            raise BrokerFailed(f"the broker did not start: {self._failure}") from self._failure
        host, port = self._address
        return f"{host}:{port}"

    def stop(self) -> None:
        self.kill()
        if self._failure is not None:
            raise BrokerFailed(f"the broker stopped by itself: {self._failure}") from self._failure

    def kill(self) -> None:
        """End it in whatever state it is; what went wrong with it does not matter any more."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if thread.is_alive():
            self.begin_to_stop()
        thread.join(_SECONDS_MAX)
        if thread.is_alive():
            raise BrokerFailed(f"the broker did not stop within {_SECONDS_MAX:.0f} s")

    def begin_to_stop(self) -> None:
        """Returns at once."""
        if self._broker is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended, and the thread is about to
                self._loop.call_soon_threadsafe(self._broker.stop)

    def on_loop(self, work: Callable[[Node], T]) -> T:
        """Run something where the broker's state may be touched, and wait for what it returns."""

        async def run() -> T:
            return work(self.node)

        return asyncio.run_coroutine_threadsafe(run(), self.node.loop).result(_SECONDS_MAX)

    def _main(self, config: BrokerConfig) -> None:
        try:
            asyncio.run(self._run(config))
        except BaseException as error:
            self._failure = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
        finally:
            self._ready.set()

    async def _run(self, config: BrokerConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker = self._make(config)
        await self._broker.run(self._on_ready)

    def _on_ready(self, address: Address) -> None:
        self._address = address
        self._ready.set()
