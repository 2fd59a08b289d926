"""The layer between dispatch and handlers: endpoints behind their guards, and the audit of administration.

Names in the values of settings are made canonical first, so that guards, audit and handlers see the same.
Without an authorizer only that and the audit are left, and every other endpoint is served as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from forebay.broker.net.dispatch import Endpoint
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.core.guards.administrative import ADMINISTRATIVE
from forebay.core.guards.guard import Refused, unguarded
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.broker.authorization.audit import AuditLog
    from forebay.broker.authorization.authorization import Authorization
    from forebay.core.guards.table import Rule

Complete = Callable[[Any], Any]
Handler = Callable[[RequestContext, Any], Any]


def guard_endpoint(endpoint: Endpoint, authorization: Authorization | None, audit: AuditLog) -> Endpoint:
    """An endpoint that cannot be used past its guard. An API without a rule is a bug."""
    api_key = endpoint.api_key
    if authorization is not None:
        rule: Rule = load("forebay.core.guards.table:RULES")[api_key]
        if rule.guard is not unguarded:
            guarded = _Guarded(endpoint, rule, authorization)
            remember = None if endpoint.remember is None else guarded.remember
            endpoint = endpoint._replace(handle=guarded.handle, remember=remember)
    if api_key not in ADMINISTRATIVE:
        return endpoint
    audited = _Audited(endpoint.handle, audit, has_guard=authorization is not None)
    canonical = load("forebay.core.guards.canonical:CANONICAL").get(api_key)
    return endpoint._replace(
        handle=audited.handle if canonical is None else _canonical(canonical, audited.handle)
    )


def _canonical(canonical: Callable[[Any], Any], handle: Handler) -> Handler:
    return lambda context, request: handle(context, canonical(request))


class _Guarded:
    def __init__(self, endpoint: Endpoint, rule: Rule, authorization: Authorization) -> None:
        self._handle = endpoint.handle
        self._remember = endpoint.remember
        self._guard = rule.guard
        self._shortcut = rule.shortcut
        self._authorization = authorization
        self._passed: Any = None
        """The last request that was let through as a whole by the shortcut."""

    def handle(self, context: RequestContext, request: Any) -> Any:
        if self._shortcut is not None and self._authorization.passes(self._shortcut, context, request):
            self._passed = request
            return self._handle(context, request)
        access = self._authorization.access(context)
        verdict = self._guard(access, context.api_version, request)
        if verdict is None:
            return self._handle(context, request)
        if access.refused:
            self._authorization.refused(context, access.refused)
        if isinstance(verdict, Refused):
            if verdict.response is None:
                context.connection.close()
            return verdict.response
        complete = _then(verdict.complete, context.complete)
        outcome = self._handle(context._replace(complete=complete), verdict.request)
        if outcome is None:  # a part was refused, and nothing but the end of the connection can say so
            context.connection.close()
            return None
        if isinstance(outcome, Reply):
            return outcome
        if asyncio.iscoroutine(outcome):
            return _completed(outcome, verdict.complete)
        return verdict.complete(outcome)

    def remember(self, context: RequestContext, request: Any, frame: memoryview) -> None:
        """Only what is allowed as a whole gets a fast path, which asks nobody."""
        passed, self._passed = self._passed, None
        if passed is request:
            assert self._remember is not None
            self._remember(context, request, frame)


def _then(first: Complete, second: Complete | None) -> Complete:
    return first if second is None else lambda response: second(first(response))


async def _completed(outcome: Awaitable[Any], complete: Callable[[Any], Any]) -> Any:
    return complete(await outcome)


class _Audited:
    def __init__(self, handle: Handler, audit: AuditLog, *, has_guard: bool) -> None:
        self._handle = handle
        self._audit = audit
        self._has_guard = has_guard

    def handle(self, context: RequestContext, request: Any) -> Any:
        about: list[str] = []

        def observe(response: Any) -> Any:
            self._audit.administered(context, request, response, has_guard=self._has_guard, about=about)
            return response

        own = context._replace(complete=_then(observe, context.complete), about=about)
        outcome = self._handle(own, request)
        if isinstance(outcome, Reply):
            return outcome
        return _completed(outcome, observe) if asyncio.iscoroutine(outcome) else observe(outcome)
