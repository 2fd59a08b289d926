"""Fetch: batches straight from the segments, at once or when enough of them have come.

Nothing is read here. Each partition answers with a range of a file, which the connection hands to sendfile.
The fetches of consumers are in `fetch/consumer_fetch.py`, those that name a view in `fetch/view_fetch.py`,
those of very many partitions in `fetch/large_fetch.py`, those of followers in `fetch/follower_fetch.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.fetch.consumer_fetch import TOPIC_IDS_FROM, ConsumerFetch, ViewNamed
from forebay.broker.fetch.follower_fetch import ReplicaFetch, replica_id
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import load
from forebay.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from forebay.broker.fetch.fetch_host import FetchHost
    from forebay.broker.fetch.large_fetch import LargeFetch
    from forebay.broker.fetch.view_fetch import ViewFetch
    from forebay.broker.net.request_context import RequestContext
    from forebay.broker.net.responses.deferred_replies import Reply
    from forebay.core.partition.fetch_session import FetchContext


AT_ONCE_MAX = 500
"""Partitions that are read at once: a few milliseconds of work. More are read in slices."""


def handle(service: FetchHost, context: RequestContext, request: FetchRequest) -> FetchResponse | Reply:
    by_id = context.api_version >= TOPIC_IDS_FROM
    follower = replica_id(request)
    is_refused = follower >= 0 and _may_not_follow(service, context)
    if context.place is not None and follower < 0 and service.lease.valid():
        return _large(service, context, request, None)
    session = service.sessions.resolve(
        request, by_id=by_id, now_ms=service.time.uptime_ms(), privileged=follower >= 0 and not is_refused
    )
    if session.error_code:
        return FetchResponse(error_code=session.error_code)
    has_lease, listener = service.lease.valid(), context.connection.listener.name
    if follower < 0:
        context.connection.consumes = True
        if len(session.targets) > AT_ONCE_MAX and has_lease:
            return _large(service, context, request, session)
        fetch = ConsumerFetch(service, request, session, listener, context.api_version)
        if not has_lease:
            return fetch.refuse()
        try:
            return fetch.start(context)
        except ViewNamed:
            view_fetch: type[ViewFetch] = load("forebay.broker.fetch.view_fetch:ViewFetch")
            return view_fetch(service, request, session, listener, context.api_version).start(context)
    if is_refused:
        error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the client may not replicate")
        return ConsumerFetch(service, request, session, listener, context.api_version).refuse_all(error)
    context.connection.replicates = True
    if not has_lease:
        return FetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return ReplicaFetch(service, request, session, listener, follower).start(context)


def _large(
    service: FetchHost, context: RequestContext, request: FetchRequest, session: FetchContext | None
) -> Reply:
    """`session`: None for a request that was so large that it was decoded in slices."""
    context.connection.consumes = True
    large_fetch: type[LargeFetch] = load("forebay.broker.fetch.large_fetch:LargeFetch")
    listener = context.connection.listener.name
    return large_fetch(service, request, session, listener, context.api_version).start(context)


def _may_not_follow(service: FetchHost, context: RequestContext) -> bool:
    return service.authorization is not None and service.authorization.refuses_follower(context)
