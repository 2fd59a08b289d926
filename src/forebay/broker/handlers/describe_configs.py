"""DescribeConfigs: the settings of topics, groups and this broker, each with its source and synonyms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.log_levels import levels
from forebay.config import (
    ConfigEntry,
    ConfigType,
    Listener,
    Source,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
)
from forebay.core.image import ALL_BROKERS
from forebay.core.resources import ResourceType, kind_of, parse_broker_id
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
    broker: Broker, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_resource(broker, context, request, resource) for resource in request.resources]
    )


def _resource(
    broker: Broker,
    context: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    try:
        entries = _entries(broker, context, resource)
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


def _entries(broker: Broker, context: RequestContext, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    if resource.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return _of_brokers(broker, context, resource)
    kind = kind_of(resource.resource_type)
    name = kind.find(broker.image, resource.resource_name)
    overrides = kind.overrides(broker.image, name)
    if resource.resource_type == ResourceType.GROUP:
        return describe_group(broker.config, overrides)
    return describe_topic(broker.config, overrides, broker.image.topics[name].replication_factor)


def _of_brokers(
    broker: Broker, context: RequestContext, resource: DescribeConfigsResource
) -> list[ConfigEntry]:
    of_loggers = resource.resource_type == ResourceType.BROKER_LOGGER
    if not resource.resource_name and not of_loggers:
        return describe_all_brokers(broker.image.broker_config(ALL_BROKERS).overrides)
    check_own_id(broker, resource.resource_name)
    return _loggers() if of_loggers else _own_settings(broker, context)


def _own_settings(broker: Broker, context: RequestContext) -> list[ConfigEntry]:
    """Addresses are shown as they are in force: the port that was chosen, and what this client is told."""
    listener = broker.config.node.listeners[0]
    host, port = broker.address_for(context.connection)
    in_force = {
        "listeners": str(replace(listener, port=broker.server.address[1])),
        "advertised.listeners": str(Listener(name=listener.name, host=host, port=port)),
    }
    return [
        replace(entry, value=in_force.get(entry.name, entry.value))
        for entry in describe_broker(broker.config)
    ]


def check_own_id(broker: Broker, name: str) -> None:
    """Each broker knows its own settings only: the client is to ask the one it means."""
    if parse_broker_id(name) != broker.node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not {name!r}")


def _loggers() -> list[ConfigEntry]:
    return [
        ConfigEntry(
            name=name,
            value=level,
            source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
            read_only=False,
            type=ConfigType.STRING,
            documentation="The least severe messages that this logger lets through.",
            synonyms=(),
        )
        for name, level in levels().items()
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
