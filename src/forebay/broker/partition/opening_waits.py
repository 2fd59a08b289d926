"""Requests that wait for partitions to be opened.

A broker with many partitions opens them when they are used, or in turn after it was ready. A request for one
that is not open yet has it opened next, and waits for it before anything of the request is carried out.
Nothing more is read from its connection meanwhile, so that its requests keep their order. When its time is
over it is handled all the same: what is not open is then refused with an error that clients try again after.

A producer sends a request for each partition. So the requests that have come behind one that waits are looked
at, and what they name of the same topics is opened along with it: the client may write to those, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from forebay.broker.background import Background
from forebay.broker.net.connection import Connection
from forebay.broker.net.dispatch import COUNTED_FROM_BYTES
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_with
from forebay.broker.partition.table import PartitionTable
from forebay.core.partition.named_partitions import NAMED, Named
from forebay.core.topic_partition import TopicPartition
from forebay.errors import KafkaError, ProtocolError
from forebay.wire.api_keys import ApiKey
from forebay.wire.codec.compiled import decoder
from forebay.wire.fields import ZERO_UUID
from forebay.wire.frames import read_request_header
from forebay.wire.messages.produce import ProduceRequest

log = logging.getLogger(__name__)

_AHEAD_MAX = 128
"""So many requests behind one that waits are looked at."""

Handler = Callable[[RequestContext, Any], Any]


class OpeningWaits:
    def __init__(
        self,
        table: PartitionTable,
        background: Background,
        loop: asyncio.AbstractEventLoop,
        finish_soon: Callable[[], None],
        may_read: Callable[[RequestContext, str], bool],
    ) -> None:
        """`finish_soon` has what was appended written soon. `may_read`: whether a client may read a topic or
        view, for requests whose handlers check that."""
        self._table = table
        self._opening = table.opening
        self._background = background
        self._loop = loop
        self._finish_soon = finish_soon
        self._may_read = may_read
        self._waiting: dict[TopicPartition, list[_Waiting]] = {}
        self._ahead: set[TopicPartition] = set()
        """Partitions that are opened for requests which have not had their turn."""

    def __len__(self) -> int:
        """How many partitions are waited for."""
        return len(self._waiting)

    def when_open(self, api_key: int, handle: Handler, context: RequestContext, request: Any) -> Any:
        """Have a request handled when its partitions are open: mostly at once."""
        if self._opening.is_complete:
            return handle(context, request)
        named = NAMED[api_key]
        missing = self._missing(named, context, request)
        if not missing:
            return handle(context, request)
        return self._wait(named, missing, handle, context, request)

    def settled(self, keys: Sequence[TopicPartition]) -> None:
        """These are open, or will not be: nobody has to wait for them."""
        if self._ahead:
            self._ahead.difference_update(keys)
        if not self._waiting:
            return
        for key in keys:
            for waiting in self._waiting.pop(key, ()):
                waiting.missing.discard(key)
                if not waiting.missing:
                    self._loop.call_soon(waiting.go_on)

    def _missing(self, named: Named, context: RequestContext, request: Any) -> set[TopicPartition]:
        table = self._table
        name_of = partial(self._readable_name, context) if named.checks_readers else self._name_of
        try:
            missing = {key for key in named.keys(request, name_of) if table.is_coming(key)}
        except KafkaError:
            return set()  # the handler will refuse it
        return missing if named.uses else {key for key in missing if table.unused_epoch(*key) is None}

    def _readable_name(self, context: RequestContext, name: str, topic_id: bytes) -> str:
        """Like `_name_of`; no topic's name if the client may not read it, so that nothing is opened."""
        image = self._table.image
        if topic_id == ZERO_UUID:
            asked: str | None = name
        else:
            asked = image.topic_names.get(topic_id) or image.view_names.get(topic_id)
        if asked is None or not self._may_read(context, asked):
            return ""
        return self._name_of(name, topic_id)

    def _name_of(self, name: str, topic_id: bytes) -> str:
        table = self._table
        return table.source_of(name) if topic_id == ZERO_UUID else table.name_of(topic_id)

    def _wait(
        self,
        named: Named,
        missing: set[TopicPartition],
        handle: Handler,
        context: RequestContext,
        request: Any,
    ) -> Reply:
        waiting, was_seen = (
            _Waiting(self, missing, handle, context, request),
            not self._ahead.isdisjoint(missing),
        )
        for key in list(missing):
            self._waiting.setdefault(key, []).append(waiting)
            self._opening.ask_for(key)
        if not was_seen and context.api_key == ApiKey.PRODUCE and context.place is None:
            self._loop.call_soon(self._look_ahead, context.connection, {name for name, _ in missing})
        waiting.timer = self._loop.call_later(named.wait_s(request), waiting.expire)
        return waiting.reply

    def _look_ahead(self, connection: Connection, topics: set[str]) -> None:
        """Have opened what the next Produce requests of a connection need of these topics."""
        named, served = (
            NAMED[ApiKey.PRODUCE],
            range(ProduceRequest.MIN_VERSION, ProduceRequest.MAX_VERSION + 1),
        )
        for frame in islice(connection.frames_behind(), _AHEAD_MAX):
            try:
                header, position = read_request_header(frame)
                is_known = header.api_key == ApiKey.PRODUCE and header.api_version in served
                if not is_known or len(frame) > COUNTED_FROM_BYTES:
                    continue
                request, _ = decoder(ProduceRequest, header.api_version)(frame, position)
                keys = list(named.keys(request, self._name_of))
            except (KafkaError, ProtocolError):
                return  # it is refused in its turn
            for key in keys:
                if key[0] in topics and self._table.is_coming(key):
                    self._ahead.add(key)
                    self._opening.ask_for(key)

    def forget(self, waiting: _Waiting) -> None:
        for key in waiting.missing:
            left = [each for each in self._waiting.get(key, ()) if each is not waiting]
            if left:
                self._waiting[key] = left
            else:
                self._waiting.pop(key, None)
        waiting.missing.clear()

    def handle(self, handle: Handler, context: RequestContext, request: Any, reply: Reply) -> None:
        """Handle a request that has waited."""
        try:
            outcome = handle(context, request)
        except Exception:  # no caller could answer the client
            log.exception("a request could not be handled")
            reply.abort()
            return
        if outcome is None:
            reply.give_up()
        elif asyncio.iscoroutine(outcome):
            self._background.spawn(answer_with(reply, outcome), "answering a request", outcome)
        elif not isinstance(outcome, Reply):
            reply.resolve_soon(outcome)
        self._finish_soon()


class _Waiting:
    """A request, and the partitions that it waits for."""

    __slots__ = ("_context", "_handle", "_queued", "_request", "_waits", "missing", "reply", "timer")

    def __init__(
        self,
        waits: OpeningWaits,
        missing: set[TopicPartition],
        handle: Handler,
        context: RequestContext,
        request: Any,
    ) -> None:
        self._waits = waits
        self.missing = missing
        self._handle = handle
        self._context = context
        self._request = request
        self._queued = context.connection.queue(_keep_records(request))
        self.reply = context.defer()
        self.reply.on_abandoned = self._abandoned
        self.timer: asyncio.TimerHandle | None = None

    def expire(self) -> None:
        self._waits.forget(self)
        self.go_on()

    def go_on(self) -> None:
        reply = self.reply
        if not self._end() or reply.abandoned:
            return
        context = _LateContext(*self._context._replace(place=lambda _: reply))
        self._waits.handle(context.counted(self._handle), context, self._request, reply)

    def _abandoned(self) -> None:
        self._waits.forget(self)
        self._end()

    def _end(self) -> bool:
        """False if it has ended before."""
        if self.timer is None:
            return False
        self.timer.cancel()
        self.timer = None
        self.reply.on_abandoned = None
        self._queued.done()
        return True


class _LateContext(RequestContext):
    """The context of a request whose place among the responses is taken already."""

    def defer(self, *, pipelined: bool = False) -> Reply:
        reply = super().defer()
        if pipelined and not reply.pipelined:
            reply.pipelined = True
            self.connection.drain_soon()  # which reads on
        return reply


def _keep_records(request: Any) -> int:
    """Copy the records of a request: the buffer that they came in is used again. How many bytes it is."""
    size = 0
    if isinstance(request, ProduceRequest):
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytearray(data.records))
                    size += len(data.records)
    return size
