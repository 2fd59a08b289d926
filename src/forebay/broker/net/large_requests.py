"""Requests with many elements: decoded, handled and encoded in slices (`scheduling/slices.py`).

A large request keeps its place in the order of its connection, from which nothing more is read meanwhile. Its
frame is copied, because what it lies in is filled by the next read; very large ones have memory of their own
(`buffers.py`). It counts as memory of requests until it is answered. A request that comes while its client
owes time to a quota waits here too, before anything is made of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from forebay.broker.background import Background
from forebay.broker.net.client_debts import ClientDebts
from forebay.broker.net.connection import ANONYMOUS
from forebay.broker.net.dispatch import Endpoint
from forebay.broker.net.request_context import Note, RequestContext
from forebay.broker.net.request_memory import QueuedRequest
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.net.responses.part_replies import PartReply
from forebay.broker.net.scheduling.slices import NotWanted, Place, Room, Slices
from forebay.broker.net.scheduling.watched_steps import WatchedSteps
from forebay.broker.telemetry.stalls import StallWatch
from forebay.broker.yielding.core_shortage import CoreShortage
from forebay.core.large_requests.division import Division, JoinedResponse
from forebay.core.large_requests.table import answer_division, division_of, has_large_answers, is_cut
from forebay.errors import ErrorCode, ProtocolError, TooManyElements
from forebay.wire.codec.compiled import stepwise_decoder
from forebay.wire.codec.layout import in_range
from forebay.wire.frames import EncodedResponse, request_header, response_steps
from forebay.wire.messages import api

log = logging.getLogger(__name__)

T = TypeVar("T")

_PARTS_UNCUT = 5


class _Kept(NamedTuple):
    """The place and the memory that others cannot have while a request is handled."""

    place: Place
    queued: QueuedRequest | None
    """None if it is of use until the request is answered."""

    def waiting(self, end: Callable[[], None] | None) -> contextlib.AbstractContextManager[None]:
        """While the request waits for something else than its turn, which `end` ends."""
        if self.queued is not None:
            self.queued.done()
        return self.place.waiting(end)


class Answers(Protocol):
    """Cuts answers that are large although their requests are small (`broker/large_answers.py`)."""

    def elements(self, api_key: int, version: int, request: Any) -> int:
        """How many elements the answer has; 0 if there are so few that it is made at once."""

    def parts(self, api_key: int, version: int, request: Any) -> Iterator[tuple[Any, Any]]:
        """The parts of an answer, each with the request to make it of."""


class LargeRequests:
    def __init__(
        self,
        background: Background,
        loop: asyncio.AbstractEventLoop,
        *,
        thread_cpu: Callable[[], float],
        shortage: CoreShortage,
        is_trusted: Callable[[str], bool],
        stalls: StallWatch,
        elements_max: Callable[[], int],
        answers: Callable[[], Answers],
        sent_by_broker: Callable[[RequestContext], bool],
        finish: Callable[[], None],
    ) -> None:
        """`thread_cpu`: the seconds of CPU that the loop's thread has used. `is_trusted` tells principals who
        may do everything. `stalls` is notified of a slice
        that blocks the loop. `answers` cuts large answers of small requests. `finish` is called after a
        handler had a piece: it writes what was appended."""
        self._background = background
        self._loop = loop
        self._elements_max = elements_max
        self._sent_by_broker = sent_by_broker
        self._finish = finish
        self._stalls = stalls
        self._answers = answers
        self.debts = ClientDebts(
            loop, shortage=shortage, is_trusted=is_trusted, sent_by_broker=sent_by_broker
        )
        self.slices = Slices(loop, thread_cpu, self.debts.charge)
        """The turns of all large work."""
        self._room = Room(loop)
        self._brokers_room = Room(loop)
        """Apart from the clients' room: their requests may wait for replicas, which other brokers' requests
        fetch."""

    def take_frame(
        self, endpoint: Endpoint, context: RequestContext, frame: memoryview, start: int, elements: int
    ) -> None:
        """Decode a request and handle it. Its body begins at `start` and has at least this many elements."""
        reply, most = context.defer(), self._most(context)
        if elements > most:  # and nothing of it has to be kept
            name = api(context.api_key).request.__name__
            work = self._refuse(context, reply, TooManyElements(name, most, elements))
        else:
            kept = bytearray(frame) if isinstance(frame.obj, bytearray) else frame
            queued = context.connection.queue(len(frame), kept)
            work = self._serve_frame(endpoint, context, reply, queued, start, most)
        self._spawn(context, len(frame), work, reply)

    def take(self, endpoint: Endpoint, context: RequestContext, request: Any, frame_bytes: int) -> None:
        """Handle a request that is decoded."""
        reply, queued = context.defer(), context.connection.queue(frame_bytes)
        work = self._serve_decoded(endpoint, context, reply, queued, request)
        self._spawn(context, frame_bytes, work, reply)

    def has_large_answer(self, context: RequestContext, request: Any) -> bool:
        return self._answer_elements(context, request) > 0

    def _answer_elements(self, context: RequestContext, request: Any) -> int:
        return self._answers().elements(context.api_key, context.api_version, request)

    def _spawn(
        self, context: RequestContext, frame_bytes: int, work: Coroutine[Any, Any, None], reply: Reply
    ) -> None:
        def blocked(seconds: float) -> None:
            header = request_header(
                context.api_key, context.api_version, context.correlation_id, context.client_id
            )
            self._stalls.caused_by(context.connection.describe(header, frame_bytes), seconds)

        watched = WatchedSteps(work, self._loop.time, self._stalls.alarm_s, blocked)
        self._background.spawn(_contained(watched, reply), "answering a large request", work)

    async def _serve_decoded(
        self, endpoint: Endpoint, context: RequestContext, reply: Reply, queued: QueuedRequest, request: Any
    ) -> None:
        place: Place | None = None
        try:
            if self.debts.is_resting(context):
                await self.debts.paid(context, reply, queued)
            size = self._answer_elements(context, request) if has_large_answers(context.api_key) else 0
            if size:
                place = await self._room_for(context).take(_client(context), size, self._elements_max())
            await self._serve(endpoint, context, reply, request, queued.held_bytes)
        finally:
            queued.done()
            if place is not None:
                place.give_back()

    async def _serve_frame(
        self,
        endpoint: Endpoint,
        context: RequestContext,
        reply: Reply,
        queued: QueuedRequest,
        start: int,
        most: int,
    ) -> None:
        size = queued.held_bytes
        place: Place | None = None
        try:
            place = await self._place_for(context, reply, queued, most)
            if not reply.abandoned:
                request = await self._decoded(context, reply, queued.frame, start, most)
                if request is not None:
                    kept = _Kept(place, None if is_cut(context.api_key) else queued)
                    await self._serve(endpoint, context, reply, request, size, kept)
        finally:
            if place is not None:
                place.give_back()
            queued.done()

    async def _place_for(
        self, context: RequestContext, reply: Reply, queued: QueuedRequest, most: int
    ) -> Place:
        """Wait until the client owes nothing and there is room for its request."""
        room = self._room_for(context)
        wanted = _client(context), min(queued.held_bytes, most), self._elements_max()
        await self.debts.paid(context, reply, queued)
        place = await room.take(*wanted)
        while not reply.abandoned and self.debts.owed_s(context):  # for what was handled meanwhile
            place.give_back()
            await self.debts.paid(context, reply, queued)
            place = await room.take(*wanted)
        return place

    def _room_for(self, context: RequestContext) -> Room:
        return self._brokers_room if self._sent_by_broker(context) else self._room

    def _most(self, context: RequestContext) -> int:
        """Fewer elements are taken of clients if they cannot be handled in pieces."""
        most = self._elements_max()
        if is_cut(context.api_key) or self._sent_by_broker(context):
            return most
        return most // _PARTS_UNCUT

    async def _decoded(
        self, context: RequestContext, reply: Reply, frame: bytearray | memoryview, start: int, most: int
    ) -> Any:
        """The request; None if it cannot be handled, which the client knows then."""
        request_class = api(context.api_key).request
        steps = stepwise_decoder(request_class, context.api_version)(memoryview(frame), start, most)
        try:
            request, _ = await self._measured(context, reply, steps)
            return request
        except TooManyElements as error:
            await self._refuse(context, reply, error)
        except ProtocolError as error:
            context.connection.close_malformed(error)
        return None

    async def _refuse(self, context: RequestContext, reply: Reply, error: TooManyElements) -> None:
        """Say what is wrong, if the response has a place for it."""
        advice = f"{error}; ask for less at a time, or raise forebay.request.elements.max"
        response_class = api(context.api_key).response
        field = response_class.FIELDS.get("error_code")
        if field is None or not in_range(field.versions, context.api_version):
            context.connection.close_malformed(ProtocolError(advice))
            return
        log.warning(
            "a request has too many elements",
            extra={"principal": context.connection.principal, "reason": advice},
        )
        response = response_class()
        response.error_code = ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
        if "error_message" in response_class.FIELDS:
            response.error_message = advice  # type: ignore[attr-defined]
        await self._send(context, reply, response)

    async def _serve(
        self,
        endpoint: Endpoint,
        context: RequestContext,
        reply: Reply,
        request: Any,
        frame_bytes: int,
        kept: _Kept | None = None,
    ) -> None:
        response = await self._response(endpoint, context, reply, request, frame_bytes, kept)
        if response is not None:
            await self._send(context, reply, response)
        elif not reply.abandoned:
            reply.give_up()

    async def _response(
        self,
        endpoint: Endpoint,
        context: RequestContext,
        reply: Reply,
        request: Any,
        frame_bytes: int,
        kept: _Kept | None,
    ) -> Any:
        user = self.debts.user(context)
        await self.slices.next(user)
        division = division_of(context.api_key, request)
        if division is not None and division.is_large(request):
            pieces = division.pieces(request)
        elif has_large_answers(context.api_key) and self.has_large_answer(context, request):
            division, pieces = answer_division(context.api_key), iter([request])
        else:
            return await self._handled(endpoint, context, reply, request, frame_bytes, kept)
        notes: dict[str, Note] = {}
        try:
            parts = self._parts(context._replace(notes=notes), pieces)
            return await self._joined(endpoint, parts, reply, division, frame_bytes, user)
        finally:  # whatever the client does meanwhile
            for note in notes.values():
                note.end()

    async def _joined(
        self,
        endpoint: Endpoint,
        pieces: Iterator[tuple[RequestContext, Any] | None],
        reply: Reply,
        division: Division,
        frame_bytes: int,
        user: str,
    ) -> Any:
        joined = JoinedResponse(division)
        for piece in pieces:
            if reply.abandoned:
                raise NotWanted
            if piece is not None:
                response = await self._handled(endpoint, piece[0], reply, piece[1], frame_bytes)
                frame_bytes = 0  # they are counted once
                if response is not None and not joined.add(response):
                    break
            if self.slices.is_over:
                await self.slices.next(user)
        return joined.whole

    def _parts(
        self, context: RequestContext, pieces: Iterator[Any]
    ) -> Iterator[tuple[RequestContext, Any] | None]:
        """The pieces of a request, and the parts of large answers. None: nothing is ready yet."""
        for piece in pieces:
            if piece is None:
                yield None
            elif not has_large_answers(context.api_key):
                yield context, piece
            else:
                for part, request in self._answers().parts(context.api_key, context.api_version, piece):
                    yield context._replace(part=part), request

    async def _handled(
        self,
        endpoint: Endpoint,
        context: RequestContext,
        reply: Reply,
        request: Any,
        frame_bytes: int,
        kept: _Kept | None = None,
    ) -> Any:
        """The handler's response, in whichever way it gives it."""
        parts: list[PartReply] = []

        def defer(complete: Callable[[Any], Any] | None) -> PartReply:
            parts.append(PartReply(context.connection, self._loop, complete))
            return parts[-1]

        own, meter = context._replace(place=defer), self.debts.meter
        if meter is None:
            outcome = endpoint.handle(own, request)
        else:
            outcome = meter.handle(endpoint.handle, own, request, frame_bytes, meter.now())
        self._finish()
        if asyncio.iscoroutine(outcome):
            outcome = await outcome
            await self.slices.next(self.debts.user(context))
        elif parts and outcome is parts[-1]:
            with contextlib.nullcontext() if kept is None else kept.waiting(parts[-1].on_overtaken):
                outcome = await _answered(reply, parts[-1])
            await self.slices.next(self.debts.user(context))
        return outcome

    async def _send(self, context: RequestContext, reply: Reply, response: Any) -> None:
        if isinstance(response, EncodedResponse):
            reply.fill_soon([response.frame(context.correlation_id)])
            return
        key = context.api_key, context.api_version, context.correlation_id
        parts = await self._measured(context, reply, response_steps(*key, response))
        if not reply.abandoned:
            reply.fill_soon(parts)

    async def _measured(self, context: RequestContext, reply: Reply, steps: Generator[None, None, T]) -> T:
        """Run steps in turns, and count their time. Raises NotWanted."""
        meter = self.debts.meter
        work = self.slices.run(steps, lambda: not reply.abandoned, self.debts.user(context))
        return await (work if meter is None else meter.counted(context, work))


async def _contained(work: Awaitable[None], reply: Reply) -> None:
    try:
        await work
    except NotWanted:
        return
    except Exception:
        log.exception("a request could not be handled")
        reply.abort()


async def _answered(reply: Reply, part: PartReply) -> Any:
    """A response that comes later. Events of the reply meanwhile go to the piece that is being handled."""
    reply.on_abandoned, reply.on_overtaken = part.abandon, part.on_overtaken
    if reply.abandoned:
        part.abandon()
    try:
        return await part.answer
    finally:
        reply.on_abandoned = reply.on_overtaken = None


def _client(context: RequestContext) -> str:
    connection = context.connection
    return connection.peer[0] if connection.principal == ANONYMOUS else connection.principal
