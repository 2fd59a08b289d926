"""What clients owe for large requests: time to quotas, and rests for CPU they took where cores are short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from forebay.broker.net.request_context import Meter, RequestContext
from forebay.broker.net.request_memory import QueuedRequest
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.net.scheduling.slices import NOBODY
from forebay.broker.yielding.core_shortage import CoreShortage, RestDebts, RestRule

_RESTS = RestRule(times=80, rest_s_max=10.0, credit_s=1.0)
_SLICE_REST_TIMES, _SLICE_REST_S_MAX = 20, 0.05
_POLL_S = 0.5
"""How often a request whose client owes time looks whether the connection or the quota is gone."""


class ClientDebts:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        shortage: CoreShortage,
        is_trusted: Callable[[str], bool],
        sent_by_broker: Callable[[RequestContext], bool],
    ) -> None:
        """`is_trusted` tells principals who may do everything."""
        self._loop = loop
        self._shortage = shortage
        self._is_trusted = is_trusted
        self._sent_by_broker = sent_by_broker
        self.rests = RestDebts(loop, shortage, lambda _: _RESTS)
        self.meter: Meter | None = None

    def user(self, context: RequestContext) -> str:
        """Who is charged for a request, and rests before the next one."""
        connection = context.connection
        if self._sent_by_broker(context) or self._is_trusted(connection.principal):
            return NOBODY
        return connection.sender

    def charge(self, user: str, cpu_s: float) -> float:
        """Note a slice of a user's work. Returns how long the loop is to rest after it."""
        self.rests.worked(user, cpu_s)
        return min(self._shortage.rest_s(cpu_s, _SLICE_REST_TIMES), _SLICE_REST_S_MAX)

    def is_resting(self, context: RequestContext) -> bool:
        """Whether its user took CPU for which it still rests."""
        return self.rests.left_s(self.user(context)) > 0

    def owed_s(self, context: RequestContext) -> float:
        """How long the client has to wait, for its quota or because cores are short."""
        rest_s = self.rests.left_s(self.user(context))
        return rest_s if self.meter is None else max(rest_s, self.meter.owed_s(context))

    async def paid(self, context: RequestContext, reply: Reply, queued: QueuedRequest) -> None:
        """Wait until the client owes nothing."""
        queued.owes(self._loop.time())
        reply.on_abandoned = queued.done  # at once, since others may wait for its memory
        while not reply.abandoned:
            owed_s = self.owed_s(context)
            if not owed_s:
                break
            await asyncio.sleep(min(owed_s, _POLL_S))
        reply.on_abandoned = None
        queued.has_paid()
