"""DescribeCluster: the live brokers, at the addresses that this client can reach them by."""

from __future__ import annotations

from forebay.broker.cluster.addresses import Addresses
from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.acls.operations import ON_CLUSTER, operations
from forebay.errors import ErrorCode
from forebay.wire.messages import describe_cluster as wire

_BROKERS = 1
_CONTROLLERS = 2


def handle(
    metadata: Metadata, addresses: Addresses, context: RequestContext, request: wire.DescribeClusterRequest
) -> wire.DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return wire.DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker; ask it for brokers (endpoint type 1)",
            endpoint_type=request.endpoint_type,
        )
    return wire.DescribeClusterResponse(
        cluster_id=metadata.image.cluster_id,
        controller_id=addresses.controller_id,
        cluster_authorized_operations=operations(
            ON_CLUSTER, asked=request.include_cluster_authorized_operations
        ),
        brokers=[
            wire.DescribeClusterBroker(broker_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, host, port, rack in addresses.addresses_for(context.connection)
        ],
    )
