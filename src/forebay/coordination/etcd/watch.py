"""A watch that outlives the server it runs on.

After every response the revision is known up to which nothing is missing: that of its last event. (The number
in the header of a response may be ahead of events that are still to come.) When the stream breaks, the next
one starts right after it, on another server. A backup may have been restored meanwhile, and written to until
its revision was higher again: then the events of the next stream belong to another history. So the reader is
notified of each new stream, by an empty list, before its first events, and compares its knowledge with the
keys.

A server that hangs, or is cut off, keeps its connections open and stays silent. So a silent stream is
checked: every few seconds its server has to show that it is alive, has a leader, and has not gone back. The
same is checked before its first events are passed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from forebay.coordination.etcd.answers import Json
from forebay.coordination.etcd.failures import (
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    NoAnswer,
    NotOurs,
    Refused,
    Unreachable,
    refusal_in,
)
from forebay.coordination.etcd.gateway import Gateway
from forebay.coordination.etcd.http import HttpError
from forebay.coordination.etcd.messages import event, watch_request
from forebay.coordination.store import Compacted, Event, StoreError

SILENCE_S = 4.0
PATIENCE_S = 8.0
"""How long streams may fail one after the other before the watch gives up."""
_BACKOFF_S = 0.1
_EVENTS_MAX = 1_000_000


async def watch(gateway: Gateway, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
    loop = asyncio.get_running_loop()
    position = from_revision
    failing_since: float | None = None
    denied = False
    interrupted = False
    while True:
        gateway.check_open()
        try:
            async with (
                gateway.stream("/v3/watch", watch_request(prefix, position)) as (index, messages),
                aclosing(_batches(gateway, index, messages)) as batches,
            ):
                checked = False
                async for events in batches:
                    if not checked:
                        # A server with a state from before this position would stay silent until it is past
                        # it.
                        await _question(gateway, index)
                        checked = True
                        if interrupted:
                            yield [], position - 1
                        interrupted = False
                    failing_since, denied = None, False
                    if events:
                        position = events[-1].kv.mod_revision + 1
                        yield events, position - 1
        except (Unreachable, NoAnswer, Refused) as error:
            # Also if this stream has not begun: the reader has loaded an earlier state.
            interrupted = True
            if isinstance(error, Refused):
                if denied or not (error.unavailable or error.stale_token or error.denied):
                    raise error.as_store_error(gateway.user) from error
                denied = error.denied  # the login may have expired once; the next one is new
            if isinstance(error, NotOurs):
                # The reader loads the keys next, which checks the identity of every server.
                raise StoreError(f"the watch on etcd ended: {error}") from error
            failing_since = loop.time() if failing_since is None else failing_since
            if loop.time() - failing_since > PATIENCE_S:
                raise StoreError(f"the watch on etcd is broken: {error}") from error
            await gateway.guard(asyncio.sleep(_BACKOFF_S))


async def _batches(
    gateway: Gateway, index: int, messages: AsyncIterator[Json]
) -> AsyncGenerator[list[Event], None]:
    """The events of each whole response; none for one that only confirms the watch."""
    events: list[Event] = []
    async with aclosing(_questioned(gateway, index, messages)) as questioned:
        async for message in questioned:
            result = _result(gateway, message)
            events += [event(item) for item in result.get("events", ())]
            if len(events) > _EVENTS_MAX:
                raise StoreError("one response of etcd has more events than fit")
            if not result.get("fragment"):
                yield events
                events = []
    raise HttpError("the watch ended")


def _result(gateway: Gateway, message: Json) -> Json:
    if "error" in message:
        raise refusal_in(message)
    result: Json = message.get("result", {})
    compacted = int(result.get("compact_revision", 0))
    if compacted:
        raise Compacted(f"events before revision {compacted} are gone")
    if result.get("canceled"):
        reason = str(result.get("cancel_reason", "no reason given"))
        raise Refused(_code_of(reason), reason)
    gateway.check_origin(result)
    return result


def _code_of(reason: str) -> int:
    """A cancelled watch gives its reason only as text."""
    if "permission denied" in reason:
        return PERMISSION_DENIED
    return UNAUTHENTICATED if "auth token" in reason else UNAVAILABLE


async def _questioned(
    gateway: Gateway, index: int, messages: AsyncIterator[Json]
) -> AsyncGenerator[Json, None]:
    while True:
        reading = asyncio.ensure_future(anext(messages, None))
        try:
            while not (await asyncio.wait((reading,), timeout=SILENCE_S))[0]:
                await _question(gateway, index)
            message = reading.result()
        finally:
            # Always retrieve its result: the stream may have broken while its server was checked.
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if message is None:
            return
        yield message


async def _question(gateway: Gateway, index: int) -> None:
    try:
        await gateway.check(index)
    except (NoAnswer, Unreachable):
        gateway.leave(index)
        raise
    except Refused as error:
        # A server that can refuse is alive; the next request deals with an expired login.
        if error.unavailable:
            raise
