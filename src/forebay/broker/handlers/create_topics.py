"""CreateTopics: each topic by itself, so that one that cannot be created does not stop the others.

A topic with the settings of a query (`core/views/catalog.py`) is a view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from forebay.broker.cluster.topic_changes import TopicChanges, named_twice, repeated
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.broker.quotas.mutation_quota import MutationQuota
from forebay.broker.views.creation import ViewCreation
from forebay.config import Source, describe_topic
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.topics.tier_rules import RESTORE
from forebay.core.cluster.topics.topic_requests import DEFAULT, NewTopic, create_topic
from forebay.core.views.catalog import names_view_settings, new_view, readable_topic, view_settings
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import create_topics as wire

if TYPE_CHECKING:
    from forebay.broker.tiers.adoption import Adoption

QUOTA_ERROR_FROM = 6
TOPIC_ID_BYTES = 16


async def handle(
    topic_changes: TopicChanges,
    view_creation: ViewCreation,
    adoption: Callable[[], Adoption],
    settings: LiveConfig,
    quotas: ClientQuotas,
    context: RequestContext,
    request: wire.CreateTopicsRequest,
) -> wire.CreateTopicsResponse:
    quota = MutationQuota(quotas, context, refuses_from=QUOTA_ERROR_FROM)
    twice = named_twice(topic.name for topic in request.topics)
    results: dict[str, wire.CreatableTopicResult] = {}
    for topic in request.topics:
        if topic.name in twice:
            results[topic.name] = _failed(topic.name, repeated(topic.name))
        else:
            results[topic.name] = await _create(
                topic_changes,
                view_creation,
                adoption,
                settings,
                quota,
                topic,
                validate_only=request.validate_only,
            )
    return quota.answered(wire.CreateTopicsResponse(topics=list(results.values())))


async def _create(
    topic_changes: TopicChanges,
    view_creation: ViewCreation,
    adoption: Callable[[], Adoption],
    settings: LiveConfig,
    quota: MutationQuota,
    topic: wire.CreatableTopic,
    *,
    validate_only: bool,
) -> wire.CreatableTopicResult:
    try:
        new = _new_topic(topic, topic_changes.new_topic_id)
        if names_view_settings(new.configs):
            view_id = topic_changes.new_topic_id()
            image = await _create_view(view_creation, new, view_id, quota, validate_only=validate_only)
            return _view_created(image, topic.name, validate_only=validate_only)
        if RESTORE in new.configs:
            new = await _restored(adoption(), new)
        image = await topic_changes.carry_out(
            lambda image: create_topic(image, settings.current, new),
            validate_only=validate_only,
            metered=quota.metered,
        )
        if not validate_only:
            topic_changes.note_created(image, topic.name)
        return _created(settings, image, topic.name, validate_only=validate_only)
    except KafkaError as error:
        return _failed(topic.name, error)


async def _restored(adoption: Adoption, new: NewTopic) -> NewTopic:
    """The request, for a topic that goes on with one of the object store. Raises KafkaError."""
    configs = dict(new.configs)
    text = configs.pop(RESTORE) or ""
    try:
        topic_id = bytes.fromhex(text)
    except ValueError:
        topic_id = b""
    if len(topic_id) != TOPIC_ID_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{RESTORE} is the id of a topic in the object store, not {text!r}"
        )
    adopted = await adoption.find(topic_id)
    is_counted = new.num_partitions != DEFAULT or new.assignment
    count = new.num_partitions if is_counted else len(adopted)
    configs["remote.storage.enable"] = "true"
    return replace(new, topic_id=topic_id, num_partitions=count, configs=configs, adopted=adopted)


async def _create_view(
    view_creation: ViewCreation, new: NewTopic, view_id: bytes, quota: MutationQuota, *, validate_only: bool
) -> ClusterImage:
    if new.assignment:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the replicas of a view cannot be chosen")
    wanted = new_view(new.name, new.topic_id, new.configs)
    if wanted.materialize:
        wanted = replace(wanted, topic_id=new.topic_id, view_id=view_id)
    return await view_creation.create(
        wanted,
        partitions=new.num_partitions,
        replicas=new.replication_factor,
        validate_only=validate_only,
        metered=quota.metered,
    )


def _view_created(image: ClusterImage, name: str, *, validate_only: bool) -> wire.CreatableTopicResult:
    topic = readable_topic(image, name)
    view = image.views.get(name) or image.fills.get(name)
    if topic is None or view is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the view was deleted again at once")
    configs = [
        wire.CreatableTopicConfigs(
            name=key, value=value, read_only=True, config_source=Source.DYNAMIC_TOPIC_CONFIG
        )
        for key, value in view_settings(image, view).items()
    ]
    return _result(name, topic, configs, validate_only=validate_only)


def _new_topic(topic: wire.CreatableTopic, new_id: Callable[[], bytes]) -> NewTopic:
    assignment = {item.partition_index: tuple(item.broker_ids) for item in topic.assignments}
    if len(assignment) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    configs = {config.name: config.value for config in topic.configs}
    if len(configs) != len(topic.configs):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "a setting is given more than once")
    return NewTopic(
        name=topic.name,
        topic_id=new_id(),
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment,
        configs=configs,
    )


def _created(
    settings: LiveConfig, image: ClusterImage, name: str, *, validate_only: bool
) -> wire.CreatableTopicResult:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted again at once")
    overrides = image.topic_config(name).overrides
    configs = [
        wire.CreatableTopicConfigs(
            name=entry.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
        )
        for entry in describe_topic(settings.current, overrides, topic.replication_factor)
    ]
    return _result(name, topic, configs, validate_only=validate_only)


def _result(
    name: str, topic: TopicImage, configs: list[wire.CreatableTopicConfigs], *, validate_only: bool
) -> wire.CreatableTopicResult:
    return wire.CreatableTopicResult(
        name=name,
        # A topic that was only validated has no id.
        topic_id=bytes(16) if validate_only else topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=configs,
    )


def _failed(name: str, error: KafkaError) -> wire.CreatableTopicResult:
    return wire.CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message, configs=None
    )
