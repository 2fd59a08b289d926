"""What ShareFetch and ShareAcknowledge have in common: acknowledgements, and the wait for their writes.

A call is complete when every write that it waits for is done. A share coordinator that cannot be reached must
not hold a client for ever: after `share.coordinator.write.timeout.ms` what is still pending is answered with
an error, and the next leader or a later write decides what becomes of it. A disk is waited for longer. What
the answer was to bring is given back after the duration of a lock, and does not count as delivered.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

from forebay.broker.net.deferred_replies import Reply
from forebay.broker.net.dispatch import RequestContext
from forebay.broker.shares.live_share import LiveShare, Written
from forebay.broker.shares.service import ShareService
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.registration import addresses_by
from forebay.core.shares.sessions import SessionPartition, ShareRequest
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Response
from forebay.wire.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint

log = logging.getLogger(__name__)

_LOOK_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ShareCall(ABC):
    """One request. It is answered at once if nothing has to be waited for."""

    def __init__(
        self, service: ShareService, context: RequestContext, seen: ShareRequest, *, is_renew_request: bool
    ) -> None:
        self._service = service
        self._context = context
        self._seen = seen
        self._is_renew_request = is_renew_request
        access = service.authorization
        self._may_read = None if access is None else access.reader(context)
        self._acknowledged: dict[SessionPartition, KafkaError | None] = {}
        """What to answer to the acknowledgements of each partition."""
        self._pending: dict[object, Written] = {}
        """Writes that the response waits for."""
        self._loading: set[object] = set()
        """Reads of the disk that it waits for."""
        self._leaders: set[int] = set()
        """Brokers that the response sends the client to."""
        self._assembled = False
        """Whether everything that the response waits for is known."""
        self._reply: Reply | None = None
        self._timer: asyncio.TimerHandle | None = None
        """When to give up the wait for writes."""

    # -- acknowledgements ------------------------------------------------------------------------------

    def _acknowledge_all(self) -> None:
        for at, batches in self._seen.acknowledgements.items():
            self._acknowledged[at] = None
            try:
                self._check_access(at)
                share = self._service.shares.get(self._seen.key.group_id, at)
                self._acknowledge(share, at, batches)
            except KafkaError as error:
                self._acknowledged[at] = error
        if self._seen.is_final:
            self._service.shares.session_ended(self._seen.key)

    def _check_access(self, at: SessionPartition) -> None:
        """Raises KafkaError for a partition whose topic the client may not read, or may not any more."""
        if self._may_read is None:
            return
        image = self._service.metadata.image
        name = image.topic_names.get(at.topic_id) or image.view_names.get(at.topic_id)
        if name is not None and not self._may_read(name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the client may not read this topic")

    def _acknowledge(
        self, share: LiveShare, at: SessionPartition, batches: Sequence[AcknowledgementBatch]
    ) -> None:
        if share.machine is None:
            # Nothing was acquired since this broker leads: the locks of the last leader are gone.
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "the member does not hold these records")
        error, write = share.machine.acknowledge(
            self._seen.key.member_id,
            batches,
            is_renew_request=self._is_renew_request,
            now_ms=self._service.time.uptime_ms() + 1,  # as when it was sent, for locks that are renewed
        )
        share.changed()
        if error:
            raise KafkaError(error, f"the acknowledgements for {share.partition} cannot be taken")
        self._wait_for(share, write, partial(self._acknowledged.__setitem__, at))

    # -- waiting ---------------------------------------------------------------------------------------

    def _wait_for(self, share: LiveShare, write: int, then: Written) -> None:
        """Have the response wait until a share partition has persisted this write."""
        share.await_write(write, self._pend(then))

    def _pend(self, then: Written) -> Written:
        """Have the response wait until what is returned here is called, but not for ever."""
        token = object()
        self._pending[token] = then

        def done(error: KafkaError | None) -> None:
            if self._pending.pop(token, None) is None:
                return  # it took too long
            then(error)
            if not self._is_waiting:
                self._settled()

        return done

    def _pend_load(self, then: Written) -> Written:
        """Have the response wait until what is returned here is called, however long that takes."""
        token = object()
        self._loading.add(token)

        def done(error: KafkaError | None) -> None:
            self._loading.discard(token)
            then(error)
            if not self._is_waiting:
                self._settled()

        return done

    @property
    def _is_waiting(self) -> bool:
        return bool(self._pending or self._loading)

    def _settled(self) -> None:
        """Nothing is left that the response would have to wait for."""
        if self._assembled:
            self._complete()

    def _answer(self) -> Response | Reply:
        """To be called when everything that the response waits for is known: the response, or its place."""
        self._assembled = True
        if self._reply is None:
            if not self._is_waiting:
                return self._response()
            self._reply = self._context.defer()
        if not self._is_waiting:
            self._complete()
        elif self._pending:
            self._limit_wait()
        return self._reply

    def _limit_wait(self) -> None:
        """Do not wait for share coordinators for ever."""
        if self._timer is None:
            timeout_s = self._service.settings.current.share_coordinator.write_timeout_ms / 1000
            self._timer = self._service.loop.call_later(timeout_s, self._give_up)

    def _give_up(self) -> None:
        """The share coordinator takes too long."""
        self._timer = None
        pending, self._pending = self._pending, {}
        late = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the share coordinator does not answer")
        for then in pending.values():
            then(late)
        if not self._is_waiting:
            self._settled()

    def _complete(self) -> None:
        """Everything that the response waited for is done. Called by others, so it does not raise."""
        assert self._reply is not None
        if self._timer is not None:
            self._timer.cancel()
        if self._reply.abandoned:
            self._abandoned()
            return
        try:
            self._reply.resolve(self._response())
        except Exception:
            log.exception("a request of a share group's member could not be answered")
            self._reply.abort()

    @abstractmethod
    def _abandoned(self) -> None:
        """The client has gone before its answer was complete."""

    @abstractmethod
    def _response(self) -> Response: ...

    # -- where the leaders are -------------------------------------------------------------------------

    def _current_leader(self, at: SessionPartition, error: KafkaError | None) -> LeaderIdAndEpoch:
        """The leader of a partition that is not led here."""
        if error is None or error.code not in _LOOK_ELSEWHERE:
            return LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        image = self._service.metadata.image
        name = image.topic_names.get(at.topic_id)
        state = None if name is None else image.partition(name, at.partition)
        if state is None or state.leader == NO_LEADER:
            return LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        self._leaders.add(state.leader)
        return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)

    def _node_endpoints(self) -> list[NodeEndpoint]:
        if not self._leaders:
            return []
        brokers = self._service.metadata.image.brokers
        found = addresses_by(self._context.connection.listener.name, brokers, self._leaders)
        return [NodeEndpoint(node_id=id, host=host, port=port, rack=rack) for id, host, port, rack in found]
