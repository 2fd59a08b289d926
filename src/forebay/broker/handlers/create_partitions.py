"""CreatePartitions: more partitions for existing topics."""

from __future__ import annotations

from forebay.broker.cluster.topic_changes import TopicChanges, named_twice, repeated
from forebay.broker.net.dispatch import RequestContext
from forebay.core.cluster.topics import create_partitions
from forebay.errors import KafkaError
from forebay.wire.messages import create_partitions as wire


async def handle(
    topic_changes: TopicChanges, _context: RequestContext, request: wire.CreatePartitionsRequest
) -> wire.CreatePartitionsResponse:
    twice = named_twice(topic.name for topic in request.topics)
    results: dict[str, wire.CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        try:
            if topic.name in twice:
                raise repeated(topic.name)
            await _create(topic_changes, topic, validate_only=request.validate_only)
            results[topic.name] = wire.CreatePartitionsTopicResult(name=topic.name)
        except KafkaError as error:
            results[topic.name] = wire.CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
    return wire.CreatePartitionsResponse(results=list(results.values()))


async def _create(
    topic_changes: TopicChanges, topic: wire.CreatePartitionsTopic, *, validate_only: bool
) -> None:
    assignment = None if topic.assignments is None else [item.broker_ids for item in topic.assignments]
    await topic_changes.carry_out(
        lambda image: create_partitions(image, topic.name, topic.count, assignment),
        validate_only=validate_only,
    )
