"""CreatePartitions: more partitions for existing topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.administration import carry_out, named_twice, repeated
from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.topics import create_partitions
from forebay.errors import KafkaError
from forebay.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, _context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    twice = named_twice(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        try:
            if topic.name in twice:
                raise repeated(topic.name)
            await _create(broker, topic, validate_only=request.validate_only)
            results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        except KafkaError as error:
            results[topic.name] = CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
    return CreatePartitionsResponse(results=list(results.values()))


async def _create(broker: Broker, topic: CreatePartitionsTopic, *, validate_only: bool) -> None:
    assignment = None if topic.assignments is None else [item.broker_ids for item in topic.assignments]
    await carry_out(
        broker,
        lambda image: create_partitions(image, topic.name, topic.count, assignment),
        validate_only=validate_only,
    )


ENDPOINT = Endpoint(37, 0, 3, handle)
