"""FoldedProducers: another broker gathers the sequences of producers whose messages it takes from now on."""

from __future__ import annotations

from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.net.request_context import RequestContext
from forebay.broker.partition.table import PartitionTable
from forebay.broker.upkeep.growing_topics import tell
from forebay.errors import KafkaError
from forebay.wire.messages.folded_producers import FoldedProducersRequest, FoldedProducersResponse


def handle(
    partitions: PartitionTable, peers: Peers, context: RequestContext, request: FoldedProducersRequest
) -> FoldedProducersResponse:
    try:
        peers.check_sender(context.client_id)
        return tell(partitions, request)
    except KafkaError as error:
        return FoldedProducersResponse(error_code=error.code, error_message=error.message)
