"""WriteTxnMarkers: a coordinator tells this broker's partitions how transactions have ended.

The partitions check the epochs of coordinator and producer. An outcome is answered once it is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.appends import Appended
from forebay.broker.connection import Reply
from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.markers import MarkerWrite, append_markers
from forebay.wire.batch import EndTxnMarker
from forebay.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

_EPOCH_BUMP_FROM = 2
"""The transaction version whose markers carry the epoch after the transaction's."""


def handle(broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest) -> Reply:
    reply = context.defer()
    writes = [write for marker in request.markers for write in _writes(marker)]
    append_markers(broker, writes, lambda results: reply.resolve(_response(request, results)))
    return reply


def _writes(wanted: WritableTxnMarker) -> list[MarkerWrite]:
    marker = EndTxnMarker(
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        commit=wanted.transaction_result,
        coordinator_epoch=wanted.coordinator_epoch,
    )
    bumps_epoch = wanted.transaction_version >= _EPOCH_BUMP_FROM
    return [
        MarkerWrite(marker=marker, topic=topic.name, index=index, bumps_epoch=bumps_epoch)
        for topic in wanted.topics
        for index in topic.partition_indexes
    ]


def _response(request: WriteTxnMarkersRequest, results: list[Appended]) -> WriteTxnMarkersResponse:
    outcomes = iter(results)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
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


ENDPOINT = Endpoint(27, 1, 2, handle)
