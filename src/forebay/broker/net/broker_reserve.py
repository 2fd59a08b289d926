"""Connections beyond the limits, for other brokers alone: so replication goes on when clients have the rest.

Only the inter-broker listener has them. Whether a peer is a broker is known from its first request: behind
its handshake and its login, so that its principal is proven. Until then its connection is on *trial*: it is
closed if that request is a client's, or does not come in time. When there is no room for another, the address
with the most connections on trial loses the oldest of them, so one address keeps no broker out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from forebay.broker.net.connection import Connection, Handle
from forebay.config import Listener
from forebay.core.security.sasl.unfinished_logins import UnfinishedLogins

_TRIAL_S = 5.0
"""How long a peer may take for its handshake, its login and its first request."""
_PER_BROKER = 9
"""Connections kept free for each other broker: one to fetch by, one to notice its end, one for each kind of
question it asks."""


class _Trial(NamedTuple):
    reason: str
    """Why a client could not have the connection."""
    timer: asyncio.TimerHandle


class BrokerReserve:
    def __init__(
        self,
        listener: Listener,
        loop: asyncio.AbstractEventLoop,
        *,
        is_broker: Callable[[Connection, memoryview], bool],
        other_brokers: Callable[[], int],
        refuse: Callable[[Connection, str], None],
    ) -> None:
        """`listener`: by which brokers come. `is_broker`: whether one has sent a request on a connection that
        has logged in. `refuse` closes a connection that is a client's."""
        self._listener = listener
        self._loop = loop
        self._is_broker = is_broker
        self._other_brokers = other_brokers
        self._refuse = refuse
        self._trials: dict[Connection, _Trial] = {}
        self._addresses: UnfinishedLogins[Connection] = UnfinishedLogins()
        self._brokers: dict[Connection, None] = {}

    def takes(self, listener: Listener) -> bool:
        """Make room for a connection of this listener; False if it may not begin a trial."""
        room = _PER_BROKER * self._other_brokers() - len(self._brokers)
        if listener.name != self._listener.name or room <= 0:
            return False
        while len(self._trials) >= room:
            self._end(self._addresses.next_to_go())
        return True

    def begin(self, connection: Connection, reason: str) -> None:
        timer = self._loop.call_later(_TRIAL_S, self._end, connection)
        self._trials[connection] = _Trial(reason, timer)
        self._addresses.add(connection.peer[0], connection)
        if not connection.listener.protocol.is_sasl:
            self.authenticated(connection)

    def authenticated(self, connection: Connection) -> None:
        """A client has logged in: the next request shows whether it is a broker."""
        if connection in self._trials:
            handle = connection.handler
            connection.handle_with(lambda _, request: self._judge(connection, request, handle))

    def _judge(self, connection: Connection, request: memoryview, handle: Handle) -> None:
        if not self._is_broker(connection, request):
            self._end(connection)
            return
        self.forget(connection)
        self._brokers[connection] = None
        connection.handle_with(handle)
        handle(connection, request)

    def _end(self, connection: Connection) -> None:
        reason = self._trials[connection].reason
        self.forget(connection)
        self._refuse(connection, reason)

    def forget(self, connection: Connection) -> None:
        """A connection was closed, or its trial has ended."""
        trial = self._trials.pop(connection, None)
        if trial is not None:
            trial.timer.cancel()
            self._addresses.discard(connection.peer[0], connection)
        self._brokers.pop(connection, None)
