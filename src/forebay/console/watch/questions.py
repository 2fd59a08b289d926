"""Requests to brokers for one picture of a cluster; some brokers may not answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TypeVar

from forebay.console.watch.snapshot import BrokerSeen
from forebay.operations.client import CommandError
from forebay.operations.wire import BrokerConnections, WireConnection
from forebay.wire.fields import Request, Response

R = TypeVar("R", bound=Response)


class Asking:
    """A broker that has failed to answer is not asked again."""

    def __init__(
        self, connections: BrokerConnections, brokers: Mapping[int, BrokerSeen], silent: set[int]
    ) -> None:
        self._connections = connections
        self.brokers = brokers
        self._silent = silent
        self.waited_s = 0.0
        """For answers: what the brokers needed, at most."""

    def ask(self, node: int, request: Request, response: type[R], limit: int | None = None) -> R | None:
        """None if the broker does not answer; it is not asked again in this picture."""
        broker = self.brokers.get(node)
        if broker is None or node in self._silent:
            return None
        began = time.monotonic()
        try:
            return self._at(broker).ask(request, response, limit)
        except CommandError:
            self._connections.forget(broker.address)
            self._silent.add(node)
            return None
        finally:
            self.waited_s += time.monotonic() - began

    def serves(self, node: int, request: type[Request]) -> bool:
        """True if the broker knows this request; False also if it cannot be reached."""
        broker = self.brokers.get(node)
        if broker is None or node in self._silent:
            return False
        try:
            return self._at(broker).serves(request)
        except CommandError:
            return False

    def _at(self, broker: BrokerSeen) -> WireConnection:
        return self._connections.at(broker.address)
