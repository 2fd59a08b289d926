"""The layer between dispatch and endpoints while any quota is set: requests of limited clients are counted.

Bytes are counted when a Produce request comes, the time that a request takes when it was handled. A client
over its quota is answered first, with the time to wait, and then nothing more is read from its connection for
that time. What has a quota of its own place to count is there: fetched bytes in `fetch_quota.py`, partitions
in `mutation_quota.py`, connections in `net/server.py`. What a client sends before it has logged in is not
counted: it is not known yet whose quota that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from forebay.broker.net.deferred_replies import Reply
from forebay.broker.net.dispatch import RequestContext
from forebay.broker.quotas.client_quotas import ClientQuotas, throttle_ms
from forebay.core.quotas.keys import QuotaKey
from forebay.core.quotas.limiter import ClientLimits

_PRODUCE = 0
_SIZE_BYTES = 4

Handle = Callable[[RequestContext, Any], Any]


class _Throttle:
    """How long the client of one request has to wait, as its response says."""

    __slots__ = ("wait_s",)

    def __init__(self) -> None:
        self.wait_s = 0.0

    def stamp(self, response: Any) -> Any:
        ms = throttle_ms(self.wait_s)
        if ms > getattr(response, "throttle_time_ms", ms):
            response.throttle_time_ms = ms
        return response


class RequestMeter:
    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def limits(self, context: RequestContext) -> bool:
        """Whether anything limits the client. Then each of its requests has to be counted."""
        return self._quotas.limits(context) is not None

    def handle(self, handle: Handle, context: RequestContext, request: Any, frame_bytes: int) -> Any:
        """Have a request handled, count it, and make its client wait if it is over its quota."""
        limits = None if context.connection.awaits_login else self._quotas.limits(context)
        if limits is None:
            return handle(context, request)
        throttle = _Throttle()
        if context.api_key == _PRODUCE:
            self._count_bytes(limits, context, throttle, frame_bytes + _SIZE_BYTES)
        has_response = context.api_key != _PRODUCE or request.acks != 0
        if has_response:
            context = context._replace(complete=throttle.stamp)
        started = self._quotas.now()
        outcome = handle(context, request)
        if asyncio.iscoroutine(outcome):
            return self._counted(outcome, context, throttle)
        self._count_time(limits, context, throttle, self._quotas.now() - started)
        return outcome if outcome is None or isinstance(outcome, Reply) else throttle.stamp(outcome)

    async def _counted(
        self, outcome: Coroutine[Any, Any, Any], context: RequestContext, throttle: _Throttle
    ) -> Any:
        """The response of a request that is handled in several turns of the loop. That may take long, so what
        limits its client is looked up again."""
        timed = _Timed(outcome, self._quotas.now)
        response = await timed
        limits = self._quotas.limits(context)
        if limits is not None:
            self._count_time(limits, context, throttle, timed.spent_s)
        return throttle.stamp(response)

    def _count_bytes(
        self, limits: ClientLimits, context: RequestContext, throttle: _Throttle, size: int
    ) -> None:
        bucket = limits.produce
        if bucket is not None and (wait_s := bucket.take(size, self._quotas.now())):
            throttle.wait_s = wait_s
            self._quotas.mute(context, QuotaKey.PRODUCE, wait_s)

    def _count_time(
        self, limits: ClientLimits, context: RequestContext, throttle: _Throttle, spent_s: float
    ) -> None:
        bucket = limits.request
        if bucket is not None and (wait_s := bucket.take(spent_s * 100, self._quotas.now())):
            throttle.wait_s = max(throttle.wait_s, wait_s)
            self._quotas.mute(context, QuotaKey.REQUEST, wait_s)


class _Timed:
    """Awaits a coroutine, and measures how long the loop is at work for it. Its waits do not count."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], now: Callable[[], float]) -> None:
        self._coroutine = coroutine
        self._now = now
        self.spent_s = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        resume: Callable[[Any], Any] = self._coroutine.send
        sent: Any = None
        while True:
            started = self._now()
            try:
                awaited = resume(sent)
            except StopIteration as end:
                return end.value
            finally:
                self.spent_s += self._now() - started
            try:
                sent = yield awaited
                resume = self._coroutine.send
            except BaseException as error:  # a cancellation, or what the awaited has raised
                resume, sent = self._coroutine.throw, error
