"""DescribeCluster: the live brokers, at the addresses that this client can reach them by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.access import ON_CLUSTER, operations
from forebay.errors import ErrorCode
from forebay.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

_BROKERS = 1
_CONTROLLERS = 2


def handle(
    broker: Broker, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker; ask it for brokers (endpoint type 1)",
            endpoint_type=request.endpoint_type,
        )
    return DescribeClusterResponse(
        cluster_id=broker.image.cluster_id,
        controller_id=broker.controller_id,
        cluster_authorized_operations=operations(
            ON_CLUSTER, asked=request.include_cluster_authorized_operations
        ),
        brokers=[
            DescribeClusterBroker(broker_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, host, port, rack in broker.addresses_for(context.connection)
        ],
    )


ENDPOINT = Endpoint(60, 0, 2, handle)
