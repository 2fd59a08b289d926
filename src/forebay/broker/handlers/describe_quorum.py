"""DescribeQuorum: there is none to describe, and this says so.

It is served for its answer alone. Of an API that is not served, kafka-metadata-quorum only says that the node
does not support it.
"""

from __future__ import annotations

from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


def handle(
    settings: LiveConfig, _context: RequestContext, _request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    store = "in its own data directory" if settings.current.cluster.url is None else "in etcd"
    return DescribeQuorumResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message=f"there is no KRaft quorum: Forebay keeps its metadata {store}; "
        "`forebay cluster describe` shows brokers and controller",
    )
