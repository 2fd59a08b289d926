"""DescribeProducers: what partitions know of their producers, to find transactions that hang.

Any replica answers, as in Kafka: `kafka-transactions find-hanging --broker-id N` asks that broker only.
"""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.broker.partition.table import PartitionTable
from forebay.core.large_requests.table import partitions_once
from forebay.core.partition.producers.producer_table import ProducerState
from forebay.errors import KafkaError
from forebay.wire.messages import describe_producers as wire


def handle(
    partitions: PartitionTable, _context: RequestContext, request: wire.DescribeProducersRequest
) -> wire.DescribeProducersResponse:
    return wire.DescribeProducersResponse(
        topics=[
            wire.TopicResponse(
                name=topic.name,
                partitions=[_partition(partitions, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in partitions_once(request.topics)
            if topic is not None
        ]
    )


def _partition(partitions: PartitionTable, topic: str, index: int) -> wire.PartitionResponse:
    try:
        producers = partitions.held(topic, index).producers
    except KafkaError as error:
        return wire.PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message
        )
    return wire.PartitionResponse(
        partition_index=index, active_producers=[_producer(state) for state in producers]
    )


def _producer(state: ProducerState) -> wire.ProducerState:
    return wire.ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.txn_first_offset,
    )
