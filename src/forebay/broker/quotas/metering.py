"""The layer between dispatch and endpoints while any quota is set: requests of limited clients are counted.

Bytes are counted when a Produce request comes, and all time that the loop works for a request: decoding,
handling, also after a wait, and encoding. A client over its quota is answered first, with the time to wait,
and then nothing more is read from its connection for that time. What it owes beyond that is not forgotten: a
request that comes while its client owes time, on whatever connection, waits until the time has passed
(`net/large_requests.py`).

Other quotas are counted where their use arises: fetched bytes in `fetch_quota.py`, partitions in
`mutation_quota.py`, connections in `net/server.py`. What a client sends before it has logged in is not
counted: it is not known yet whose quota that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.core.quotas.keys import QuotaKey
from forebay.core.quotas.limiter import ClientLimits
from forebay.wire.api_keys import ApiKey

_SIZE_BYTES = 4
_OWED_S_ALLOWED = 0.1
"""Connections that share a quota may be over it together by this much."""

T = TypeVar("T")

Handle = Callable[[RequestContext, Any], Any]


class _Throttle:
    """How long the client of one request has to wait, as its response says."""

    __slots__ = ("wait_ms",)

    def __init__(self) -> None:
        self.wait_ms = 0

    def stamp(self, response: Any) -> Any:
        ms = self.wait_ms
        if ms > getattr(response, "throttle_time_ms", ms):
            response.throttle_time_ms = ms
        return response


class RequestMeter:
    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def now(self) -> float:
        return self._quotas.now()

    def limits(self, context: RequestContext) -> bool:
        """True if any quota limits the client. Then each of its requests has to be counted."""
        return self._quotas.limits(context) is not None

    def owed_s(self, context: RequestContext) -> float:
        """How long until the client may have another request handled; 0 if now."""
        limits = self._limits(context)
        if limits is None or limits.request is None:
            return 0.0
        owed_s = limits.request.wait_s(self._quotas.now())
        return owed_s if owed_s > _OWED_S_ALLOWED else 0.0

    def _limits(self, context: RequestContext) -> ClientLimits | None:
        return None if context.connection.awaits_login else self._quotas.limits(context)

    def handle(
        self, handle: Handle, context: RequestContext, request: Any, frame_bytes: int, began_s: float
    ) -> Any:
        """Have a request handled, count it, and make its client wait if it is over its quota."""
        limits = self._limits(context)
        if limits is None:
            return handle(context, request)
        throttle = _Throttle()
        if context.api_key == ApiKey.PRODUCE and frame_bytes:
            self._count_bytes(limits, context, throttle, frame_bytes + _SIZE_BYTES)
        has_response = context.api_key != ApiKey.PRODUCE or request.acks != 0
        if has_response:
            context = context._replace(complete=throttle.stamp, meter=self)
        outcome = handle(context, request)
        spent_s = self._quotas.now() - began_s
        if asyncio.iscoroutine(outcome):
            return self._stamped(outcome, context, throttle, spent_s)
        self._count_time(limits, context, throttle, spent_s)
        return outcome if outcome is None or isinstance(outcome, Reply) else throttle.stamp(outcome)

    async def _stamped(
        self, outcome: Coroutine[Any, Any, Any], context: RequestContext, throttle: _Throttle, spent_s: float
    ) -> Any:
        """The response of a request that is handled in several turns of the loop. That may take long, so what
        limits its client is looked up again."""
        timed = _Timed(outcome, self._quotas.now)
        response = await timed
        limits = self._quotas.limits(context)
        if limits is not None:
            self._count_time(limits, context, throttle, spent_s + timed.spent_s)
        return throttle.stamp(response)

    def count(self, context: RequestContext, began_s: float) -> None:
        """Count the time since then. The response is made already: the next one tells how long to wait."""
        self._spend(context, self._quotas.now() - began_s)

    async def counted(self, context: RequestContext, work: Coroutine[Any, Any, T]) -> T:
        """Do the work, and count its time for the client."""
        timed = _Timed(work, self._quotas.now)
        try:
            result: T = await timed
            return result
        finally:
            self._spend(context, timed.spent_s)

    def _spend(self, context: RequestContext, spent_s: float) -> None:
        limits = self._limits(context)
        if limits is not None and limits.request is not None:
            self._quotas.prolong(context, limits.request.take(spent_s * 100, self._quotas.now()))

    def _count_bytes(
        self, limits: ClientLimits, context: RequestContext, throttle: _Throttle, size: int
    ) -> None:
        bucket = limits.produce
        if bucket is not None and (wait_s := bucket.take(size, self._quotas.now())):
            throttle.wait_ms = self._quotas.mute(context, QuotaKey.PRODUCE, wait_s)

    def _count_time(
        self, limits: ClientLimits, context: RequestContext, throttle: _Throttle, spent_s: float
    ) -> None:
        bucket = limits.request
        if bucket is not None and (wait_s := bucket.take(spent_s * 100, self._quotas.now())):
            told_ms = self._quotas.mute(context, QuotaKey.REQUEST, wait_s)
            throttle.wait_ms = max(throttle.wait_ms, told_ms)


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
