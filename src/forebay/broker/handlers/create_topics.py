"""CreateTopics: each topic by itself, so that one that cannot be does not stop the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.administration import carry_out, named_twice, new_topic_id, note_created, repeated
from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.config import describe_topic
from forebay.core.image import ClusterImage
from forebay.core.topics import NewTopic, create_topic
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, _context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    twice = named_twice(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        if topic.name in twice:
            results[topic.name] = _failed(topic.name, repeated(topic.name))
        else:
            results[topic.name] = await _create(broker, topic, validate_only=request.validate_only)
    return CreateTopicsResponse(topics=list(results.values()))


async def _create(broker: Broker, topic: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    try:
        new = _new_topic(broker, topic)
        image = await carry_out(
            broker, lambda image: create_topic(image, broker.config, new), validate_only=validate_only
        )
        if not validate_only:
            note_created(broker, image, topic.name)
        return _created(broker, image, topic.name, validate_only=validate_only)
    except KafkaError as error:
        return _failed(topic.name, error)


def _new_topic(broker: Broker, topic: CreatableTopic) -> NewTopic:
    assignment = {item.partition_index: tuple(item.broker_ids) for item in topic.assignments}
    if len(assignment) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    configs = {config.name: config.value for config in topic.configs}
    if len(configs) != len(topic.configs):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "a setting is given more than once")
    return NewTopic(
        name=topic.name,
        topic_id=new_topic_id(broker),
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment,
        configs=configs,
    )


def _created(broker: Broker, image: ClusterImage, name: str, *, validate_only: bool) -> CreatableTopicResult:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted again at once")
    return CreatableTopicResult(
        name=name,
        # A topic that was only thought of has no id.
        topic_id=bytes(16) if validate_only else topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
            )
            for entry in describe_topic(
                broker.config, image.topic_config(name).overrides, topic.replication_factor
            )
        ],
    )


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message, configs=None)


ENDPOINT = Endpoint(19, 2, 7, handle)
