"""FoldedProducers: another broker gathers the sequences of producers whose messages it takes from now on."""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.broker.partition.table import PartitionTable
from forebay.broker.upkeep.growing_topics import tell
from forebay.errors import KafkaError
from forebay.wire.messages.folded_producers import FoldedProducersRequest, FoldedProducersResponse


def handle(
    partitions: PartitionTable, _context: RequestContext, request: FoldedProducersRequest
) -> FoldedProducersResponse:
    try:
        return tell(partitions, request)
    except KafkaError as error:
        return FoldedProducersResponse(error_code=error.code, error_message=error.message)
