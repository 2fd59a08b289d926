"""A fetch that a task answers: it reads, waits for more, and reads again until there is enough to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from forebay.broker.fetch.consumer_fetch import ConsumerFetch
from forebay.broker.fetch.fetch_host import FetchHost
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.partition.long_polls import FetchWait
from forebay.broker.partition.partition import Partition
from forebay.core.partition.fetch_session import FetchContext
from forebay.wire.messages.fetch import FetchRequest


class RepeatedFetch(ConsumerFetch):
    __slots__ = ("_is_overtaken", "_wait")

    def __init__(
        self,
        service: FetchHost,
        request: FetchRequest,
        session: FetchContext,
        listener: str,
        version: int,
    ) -> None:
        super().__init__(service, request, session, listener, version)
        self._is_overtaken = False
        """True if it holds up another request, and is answered with what there is."""
        self._wait: FetchWait | None = None

    def _end_wait_with(self, reply: Reply) -> None:
        """End a wait when the client has gone, or when this fetch holds up another request."""
        reply.on_abandoned, reply.on_overtaken = self._end_wait, self._overtaken

    def _deadline_s(self) -> float:
        return self._service.loop.time() + max(self._request.max_wait_ms, 0) / 1000

    async def _wait_for(
        self,
        bytes_missing: int,
        deadline_s: float,
        recount: Callable[[Partition, int, int], int] | None = None,
    ) -> None:
        """Until this much has come, the time is up, this fetch is overtaken, or the client has gone."""
        loop = self._service.loop
        over: asyncio.Future[None] = loop.create_future()
        self._wait = FetchWait(
            self._partitions,
            bytes_missing=bytes_missing,
            complete=lambda: None if over.done() else over.set_result(None),
            loop=loop,
            timeout_s=max(deadline_s - loop.time(), 0),
            recount=recount,
        )
        if self._missed:
            self._wait_for_store(self._wait)
        try:
            await over
        finally:
            self._end_wait()

    def _overtaken(self) -> None:
        self._is_overtaken = True
        self._end_wait()

    def _end_wait(self) -> None:
        if self._wait is not None:
            self._wait.finish()
