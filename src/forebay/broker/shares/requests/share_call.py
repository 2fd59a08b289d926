"""The common part of ShareFetch and ShareAcknowledge: acknowledgements, and the way to the response.

`core/shares/call_states.py` has the states of a call, `outstanding.py` the operations that a response waits
for.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.shares.live_share import LiveShare
from forebay.broker.shares.requests.outstanding import Outstanding
from forebay.broker.shares.requests.service import ShareService
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.registration import addresses_by
from forebay.core.shares.call_states import ANSWER, ASSEMBLING, PERSIST, PERSISTING, CallState, Transition
from forebay.core.shares.sessions import SessionPartition, ShareRequest
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Response
from forebay.wire.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint

log = logging.getLogger(__name__)

_LOOK_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ShareCall(ABC):
    """One request. It is answered at once if it has nothing to wait for."""

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
        """The result of the acknowledgements of each partition; None: success."""
        self._leaders: set[int] = set()
        """Brokers that the response sends the client to."""
        self._state: CallState = ASSEMBLING
        self._outstanding = Outstanding(service.loop, self._nothing_outstanding)
        self._reply: Reply | None = None
        """The place of a response that has to wait, until it is answered."""

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
        """Raises KafkaError for a partition whose topic the client may not read, or no longer."""
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
            # Nothing was acquired in this term; the locks of the last leader ended with its term.
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
        then = partial(self._acknowledged.__setitem__, at)
        share.await_write(write, self._outstanding.add(then, is_write=True))

    # -- the way to the answer -------------------------------------------------------------------------

    def _enter(self, transition: Transition) -> None:
        assert self._state in transition.sources, f"no way to {transition.name} while {self._state.name}"
        self._state = transition.target

    def _answer(self) -> Response | Reply:
        """Call it when all operations that the response waits for are known. Returns the response or its
        place."""
        if self._outstanding:
            self._enter(PERSIST)
            reply = self._reply = self._reply or self._context.defer()
            self._limit_writes()
            return reply
        if self._reply is not None:
            return self._complete(self._reply)
        self._end()
        return self._response()

    def _limit_writes(self) -> None:
        settings = self._service.settings.current.share_coordinator
        self._outstanding.limit_writes(settings.write_timeout_ms / 1000)

    def _nothing_outstanding(self) -> None:
        """Called when the last write or read that the response waits for is done."""
        if self._state is PERSISTING:
            assert self._reply is not None
            self._complete(self._reply)

    def _complete(self, reply: Reply) -> Reply:
        """Fill in a response that had to wait. It does not raise: it is called from other requests."""
        self._end()
        if reply.abandoned:
            self._abandoned()
            return reply
        try:
            reply.resolve(self._response(is_late=True))
        except Exception:
            log.exception("a request of a share group's member could not be answered")
            reply.abort()
        return reply

    def _end(self) -> None:
        self._enter(ANSWER)
        self._outstanding.close()
        self._reply = None

    @abstractmethod
    def _abandoned(self) -> None:
        """Called if the client has gone before its response was complete."""

    @abstractmethod
    def _response(self, *, is_late: bool = False) -> Response:
        """The response. `is_late`: it had to wait."""

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
