"""WriteTxnMarkers: a coordinator tells this broker's partitions how transactions have ended.

The partitions check the epochs of coordinator and producer. An outcome is answered once it is committed.

A request that was overtaken by one on a newer connection of the same broker is refused: the coordinator may
have gone on without it, and a marker with the same epochs would end the next transaction of the producer.
"""

from __future__ import annotations

from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.coordinators.markers import BUMPS_EPOCH_FROM, MarkerAppends, MarkerWrite
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.produce.write_cycle import Appended
from forebay.errors import ErrorCode
from forebay.wire.batch import EndTxnMarker
from forebay.wire.messages import write_txn_markers as wire


def handle(
    marker_appends: MarkerAppends, peers: Peers, context: RequestContext, request: wire.WriteTxnMarkersRequest
) -> Reply | wire.WriteTxnMarkersResponse:
    writes = [write for marker in request.markers for write in _writes(marker, request.revision)]
    if not peers.admit(context.client_id):
        late = [Appended(write.index, error_code=ErrorCode.REQUEST_TIMED_OUT) for write in writes]
        return _response(request, late)
    reply = context.defer(pipelined=True)
    marker_appends.append(writes, lambda results: reply.resolve(_response(request, results)))
    return reply


def _writes(wanted: wire.WritableTxnMarker, revision: int) -> list[MarkerWrite]:
    marker = EndTxnMarker(
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        commit=wanted.transaction_result,
        coordinator_epoch=wanted.coordinator_epoch,
    )
    bumps_epoch = wanted.transaction_version >= BUMPS_EPOCH_FROM
    return [
        MarkerWrite(
            marker=marker,
            topic=topic.name,
            index=index,
            named=index,
            bumps_epoch=bumps_epoch,
            revision=revision,
        )
        for topic in wanted.topics
        for index in topic.partition_indexes
    ]


def _response(request: wire.WriteTxnMarkersRequest, results: list[Appended]) -> wire.WriteTxnMarkersResponse:
    outcomes = iter(results)
    return wire.WriteTxnMarkersResponse(
        markers=[
            wire.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    wire.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            wire.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=next(outcomes).error_code
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
