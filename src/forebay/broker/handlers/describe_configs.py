"""DescribeConfigs: the settings of topics and of this broker, each with its source and synonyms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.config import ConfigEntry, ConfigType, Source, describe_broker, describe_topic
from forebay.core.image import ALL_BROKERS
from forebay.core.settings import ResourceType
from forebay.core.topics import existing_topic, validate_topic_name
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(
    broker: Broker, _context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_resource(broker, request, resource) for resource in request.resources]
    )


def _resource(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        entries = _entries(broker, resource)
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    keys = resource.configuration_keys
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_result(request, entry) for entry in entries if not keys or entry.name in keys],
    )


def _entries(broker: Broker, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        validate_topic_name(name)
        existing_topic(broker.image, name)
        return describe_topic(broker.config, broker.image.topic_config(name).overrides)
    if resource.resource_type != ResourceType.BROKER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource.resource_type} has no settings here; use topic or broker",
        )
    if not name:
        return _common(broker)
    if name != str(broker.node_id):
        # Each broker knows its own settings only: the client is to ask the one it means.
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not {name!r}")
    return describe_broker(broker.config)


def _common(broker: Broker) -> list[ConfigEntry]:
    """The settings that were given to all brokers at once."""
    overrides = broker.image.broker_config(ALL_BROKERS).overrides
    return [
        ConfigEntry(
            name=entry.name,
            value=overrides[entry.name],
            source=Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
            read_only=entry.read_only,
            type=entry.type,
            documentation=entry.documentation,
            synonyms=(),
        )
        for entry in describe_broker(broker.config)
        if entry.name in overrides
    ]


def _result(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.type is ConfigType.PASSWORD,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


ENDPOINT = Endpoint(32, 1, 4, handle)
