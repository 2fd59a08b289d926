"""The layer between dispatch and endpoints while any quota is set: requests of limited clients are counted.

Bytes are counted when a Produce request comes, the time that a request takes when it was handled. A client
over its quota is answered first, with the time to wait, and then nothing more is read from its connection for
that time. What has a quota of its own place to count is there: fetched bytes in `fetch_quota.py`, partitions
in `mutation_quota.py`, connections in `net/server.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from forebay.broker.net.deferred_replies import Reply
from forebay.broker.net.dispatch import RequestContext
from forebay.broker.quotas.client_quotas import ClientQuotas, throttle_ms
from forebay.core.quotas.keys import QuotaKey
from forebay.core.quotas.limiter import ClientLimits

_PRODUCE = 0
_NOT_LIMITED = frozenset({17, 18, 36})
"""What a client sends before it is known who it is."""
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
        limits = None if context.api_key in _NOT_LIMITED else self._quotas.limits(context)
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
        self._count_time(limits, context, throttle, started)
        if outcome is None or isinstance(outcome, Reply):
            return outcome
        return _stamped(outcome, throttle) if asyncio.iscoroutine(outcome) else throttle.stamp(outcome)

    def _count_bytes(
        self, limits: ClientLimits, context: RequestContext, throttle: _Throttle, size: int
    ) -> None:
        bucket = limits.produce
        if bucket is not None and (wait_s := bucket.take(size, self._quotas.now())):
            throttle.wait_s = wait_s
            self._quotas.mute(context, QuotaKey.PRODUCE, wait_s)

    def _count_time(
        self, limits: ClientLimits, context: RequestContext, throttle: _Throttle, started: float
    ) -> None:
        bucket, now = limits.request, self._quotas.now()
        if bucket is not None and (wait_s := bucket.take((now - started) * 100, now)):
            throttle.wait_s = max(throttle.wait_s, wait_s)
            self._quotas.mute(context, QuotaKey.REQUEST, wait_s)


async def _stamped(outcome: Awaitable[Any], throttle: _Throttle) -> Any:
    return throttle.stamp(await outcome)
