"""The fetches of consumers that name very many partitions, or have so many in their session.

They are read and answered in slices, as other large requests are (`net/scheduling/slices.py`). A request that
continues a session may be small and still have all partitions of the session to look at.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from forebay.broker.fetch.consumer_fetch import TOPIC_IDS_FROM, ViewNamed
from forebay.broker.fetch.repeated_fetch import RepeatedFetch
from forebay.broker.net.responses.part_replies import PartReply
from forebay.broker.net.scheduling.slices import NotWanted
from forebay.broker.partition.leader_epoch_checks import hear_of
from forebay.core.partition.fetch_session import NO_SESSION, FetchContext
from forebay.lazy import load
from forebay.wire.frames import response_steps
from forebay.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Generator

    from forebay.broker.fetch.cold_reads import Outcomes
    from forebay.broker.fetch.fetch_host import FetchHost
    from forebay.broker.fetch.view_fetch import ViewFetch
    from forebay.broker.net.request_context import RequestContext
    from forebay.broker.net.responses.deferred_replies import Reply
    from forebay.wire.messages.fetch import FetchRequest, PartitionData

log = logging.getLogger(__name__)

T = TypeVar("T")

_IN_A_STEP = 50
"""Partitions that are read before the time of a slice is looked at."""


class LargeFetch(RepeatedFetch):
    """One request. It is read again when its wait is over, in slices too."""

    __slots__ = ("_context", "_is_resolved", "_version")

    def __init__(
        self,
        service: FetchHost,
        request: FetchRequest,
        session: FetchContext | None,
        listener: str,
        version: int,
    ) -> None:
        """`session`: None if it is still to be looked at, which takes long too for very many partitions."""
        super().__init__(service, request, session or FetchContext([]), listener, version)
        self._is_resolved = session is not None
        self._version = version

    def start(self, context: RequestContext) -> Reply:
        self._look_up_client(context)
        self._context = context
        reply = context.defer()
        self._end_wait_with(reply)
        work = self._answer(reply)
        self._service.background.spawn(context.counted_work(work), "answering a large fetch", work)
        return reply

    async def _answer(self, reply: Reply) -> None:
        try:
            if not self._is_resolved:
                self._session = await self._in_slices(reply, self._resolve_steps())
            if self._session.error_code:
                reply.resolve(FetchResponse(error_code=self._session.error_code))
                return
            await self._collect(reply)
            reply.on_abandoned = reply.on_overtaken = None
            if not self._service.lease.valid():  # the lease has ended while the fetch waited
                reply.resolve(self.refuse())
                return
            await self._warm()
            if reply.abandoned:
                return
            if self._quota is not None and self._size:
                await self._send(reply, self._response())
            else:
                await self._send(reply, await self._in_slices(reply, self._response_steps()))
        except NotWanted:
            return
        except ViewNamed:
            view_fetch: type[ViewFetch] = load("forebay.broker.fetch.view_fetch:ViewFetch")
            other = view_fetch(self._service, self._request, self._session, self._listener, self._version)
            await other.answer(self._context, reply)
        except Exception:
            log.exception("a large fetch could not be answered")
            reply.abort()

    async def _collect(self, reply: Reply) -> None:
        """Read until there is something to answer. Ends with a reading that is up to date."""
        deadline_s, has_waited = self._deadline_s(), False
        while True:
            await self._in_slices(reply, self._read_steps())
            if self._urgent and not has_waited and (news := self._news()):
                has_waited = True
                await hear_of(news, self._service.metadata)
                continue
            enough = self._urgent or not self._partitions or self._bytes_missing() <= 0
            if enough or self._is_overtaken or self._service.loop.time() >= deadline_s:
                return
            await self._await_more(deadline_s)

    def _resolve_steps(self) -> Generator[None, None, FetchContext]:
        service, by_id = self._service, self._version >= TOPIC_IDS_FROM
        now_ms = service.time.uptime_ms()
        return service.sessions.resolve_steps(self._request, by_id=by_id, now_ms=now_ms)

    def _read_steps(self) -> Generator[None, None, None]:
        self._begin_reading()
        targets, left = self._session.targets, self._bytes_max()
        for start in range(0, len(targets), _IN_A_STEP):
            left = self._read_targets(targets[start : start + _IN_A_STEP], left)
            yield

    async def _await_more(self, deadline_s: float) -> None:
        """Until enough may be readable. What may not be read yet is counted again when more comes.

        Nobody has told this fetch what happened to the first partitions while it read the others.
        """
        self._counted = {}
        if any(partition.closed for partition in self._partitions):
            return  # which is answered with an error, after another reading
        committed, seen = self._committed, self._seen
        moved = [p for p in self._partitions if p.readable_end(committed=committed) != seen[p]]
        self._early = bool(moved) or self._is_early()
        missing = self._bytes_missing()
        for partition in moved:
            missing = self._recount(partition, missing, 0)
        if missing > 0:
            await self._wait_for(missing, deadline_s, self._recount if committed or self._early else None)

    async def _warm(self) -> None:
        """Wait for the device's bytes, as `_load` does, whose answer is made at once."""
        cold = self._cold()
        if not cold:
            return
        loaded: asyncio.Future[Outcomes] = self._service.loop.create_future()

        def done(outcomes: Outcomes) -> None:
            if not loaded.done():
                loaded.set_result(outcomes)

        self._service.cold_reads.load([(p.log.files, found) for p, found in cold], done)
        self._give_up(cold, await loaded)

    async def _in_slices(self, reply: Reply, steps: Generator[None, None, T]) -> T:
        return await self._service.slices.run(steps, lambda: not reply.abandoned)

    def _response_steps(self) -> Generator[None, None, FetchResponse]:
        """A session of which most partitions are refused is not kept: any number of names can be made up."""
        topics: dict[str | bytes, list[PartitionData]] = {}
        session, refused = self._session, 0
        for start in range(0, len(self._found), _IN_A_STEP):
            found = self._found[start : start + _IN_A_STEP]
            refused += sum(1 for _, data, _ in found if data.error_code)
            self._collect_answers(found, topics)
            yield
        if session.session is not None and 2 * refused > len(session.session.targets):
            self._service.sessions.close(session.session)
            if not session.incremental:
                session.session_id = NO_SESSION
        return self._made_of(topics)

    def _count_all(self) -> int:
        return 0  # it is read again in slices

    async def _send(self, reply: Reply, response: FetchResponse) -> None:
        if isinstance(reply, PartReply):  # what cut the request also encodes the answer in slices
            reply.resolve(response)
            return
        context = self._context
        key = context.api_key, context.api_version, context.correlation_id
        steps = response_steps(*key, response)
        reply.fill_soon(await self._in_slices(reply, steps))
