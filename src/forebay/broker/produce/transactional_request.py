"""A Produce request of a transaction: appended when the coordinator has agreed, mostly at once."""

from __future__ import annotations

import logging
from functools import partial

from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.produce.produce_host import ProduceHost
from forebay.broker.produce.request import AppendRequest, Encode
from forebay.broker.produce.transaction_verification import Admission, verify
from forebay.core.partition.folds.closed_partition import PassOn
from forebay.wire.messages.produce import ProduceRequest

log = logging.getLogger(__name__)


class TransactionalRequest:
    """A request that is appended when its transaction has been verified: mostly at once."""

    __slots__ = ("_append", "_context", "_known", "_reply", "_request", "_service", "_version")

    def __init__(
        self,
        service: ProduceHost,
        context: RequestContext,
        request: ProduceRequest,
        encode: Encode,
        *,
        version: int,
        known: PassOn | None = None,
    ) -> None:
        """As for `AppendRequest`."""
        self._append = partial(AppendRequest, service, context, request, encode, version=version, known=known)
        self._service = service
        self._context = context
        self._request = request
        self._version = version
        self._known = known
        self._reply: Reply | None = None

    def start(self) -> Reply:
        service = self._service
        done = verify(
            self._request,
            self._version,
            known=self._known,
            partitions=service.partitions,
            takers=service.takers,
            ask=service.verify_transaction,
            proceed=self._proceed,
        )
        if not done:
            self._reply = self._context.defer()
        assert self._reply is not None
        return self._reply

    def _proceed(self, admission: Admission) -> None:
        late = self._reply
        appending = self._append(admission=admission, reply=late)
        if late is None:
            self._reply = appending.start()
            return
        try:
            appending.start()
        except Exception:  # no caller could answer the client
            log.exception("a request could not be handled")
            admission.release()
            late.abort()
        self._service.write_cycle.finish_soon()
