"""DescribeConfigs: the settings of topics, groups and this broker, each with its source and synonyms."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from forebay.broker.cluster.addresses import Addresses
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.ports import Address
from forebay.broker.telemetry.log_levels import levels
from forebay.config import (
    BrokerConfig,
    ConfigEntry,
    ConfigType,
    Listener,
    Source,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
    describe_unknown,
)
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ALL_BROKERS, ClusterImage
from forebay.core.cluster.images.view_image import ViewImage
from forebay.core.cluster.resources import ResourceType, kind_of, parse_broker_id
from forebay.core.views.catalog import names_only_view_settings, view_named, view_settings
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import describe_configs as wire

_Asked = tuple[int, str, frozenset[str] | None]
"""A resource with the names of the settings that are wanted. One that is asked for twice is answered once."""


class _View(NamedTuple):
    """The broker's settings and image at this moment, as the asking client sees them."""

    node_id: int
    config: BrokerConfig
    image: ClusterImage
    listener: Listener
    """The one that the client came by."""
    local: Address
    """The address that the client has connected to."""
    advertised: Address
    """The address that clients connect to."""


def handle(
    node_id: int,
    settings: LiveConfig,
    metadata: Metadata,
    addresses: Addresses,
    context: RequestContext,
    request: wire.DescribeConfigsRequest,
) -> wire.DescribeConfigsResponse:
    caller = context.connection
    view = _View(
        node_id,
        settings.current,
        metadata.image,
        caller.listener,
        caller.local,
        addresses.address_for(caller),
    )
    described: dict[_Asked, wire.DescribeConfigsResult] = {}
    for resource in request.resources:
        keys = resource.configuration_keys
        asked = resource.resource_type, resource.resource_name, None if keys is None else frozenset(keys)
        if asked not in described:
            described[asked] = _resource(view, request, resource)
    return wire.DescribeConfigsResponse(results=list(described.values()))


def _resource(
    view: _View, request: wire.DescribeConfigsRequest, resource: wire.DescribeConfigsResource
) -> wire.DescribeConfigsResult:
    try:
        entries = _entries(view, resource)
    except KafkaError as error:
        return wire.DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    keys = frozenset(resource.configuration_keys or ())
    return wire.DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_result(request, entry) for entry in entries if not keys or entry.name in keys],
    )


def _entries(view: _View, resource: wire.DescribeConfigsResource) -> list[ConfigEntry]:
    if resource.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return _of_brokers(view, resource)
    if resource.resource_type == ResourceType.TOPIC:
        shown = view_named(view.image, resource.resource_name)
        if shown is not None:
            return _of_view(view, shown)
        keys = resource.configuration_keys
        filled_by = view.image.fills.get(resource.resource_name)
        if filled_by is not None and resource.resource_name in view.image.topics:
            return _query(view, filled_by) + _of_topic(view, resource.resource_name)
        if keys and names_only_view_settings(keys) and resource.resource_name in view.image.topics:
            return []  # asked of every topic by those who look for the views
    kind = kind_of(resource.resource_type)
    name = kind.find(view.image, resource.resource_name)
    overrides = kind.overrides(view.image, name)
    if resource.resource_type == ResourceType.GROUP:
        return describe_group(view.config, overrides)
    return _of_topic(view, name)


def _of_topic(view: _View, name: str) -> list[ConfigEntry]:
    overrides = view.image.topic_config(name).overrides
    return describe_topic(view.config, overrides, view.image.topics[name].replication_factor)


def _query(view: _View, shown: ViewImage) -> list[ConfigEntry]:
    """The query of the view, as settings."""
    return [
        ConfigEntry(
            name=name,
            value=value,
            source=Source.DYNAMIC_TOPIC_CONFIG,
            read_only=True,
            type=ConfigType.STRING,
            documentation="A part of the view's query.",
            synonyms=(),
        )
        for name, value in view_settings(view.image, shown).items()
    ]


def _of_view(view: _View, shown: ViewImage) -> list[ConfigEntry]:
    """The query of the view, then the settings of its source, which are altered there."""
    own = _query(view, shown)
    source = view.image.topic_by_id(shown.source_id)
    if source is None:
        return own
    inherited = _of_topic(view, source.name)
    return own + [replace(entry, read_only=True) for entry in inherited]


def _of_brokers(view: _View, resource: wire.DescribeConfigsResource) -> list[ConfigEntry]:
    of_loggers = resource.resource_type == ResourceType.BROKER_LOGGER
    if not resource.resource_name and not of_loggers:
        return describe_all_brokers(view.image.broker_config(ALL_BROKERS).overrides)
    check_own_id(view.node_id, resource.resource_name)
    return _loggers() if of_loggers else _own_settings(view)


def _own_settings(view: _View) -> list[ConfigEntry]:
    """The addresses of the listener that the client came by are shown as they are in force: the port that was
    chosen, and the address that this client is told to connect to."""
    listeners, own = view.config.node.listeners, view.listener.name
    host, port = view.advertised
    advertised = {**listeners.advertised, own: replace(view.listener, host=host, port=port)}
    in_force = {
        "listeners": ",".join(
            str(replace(each, port=view.local[1]) if each.name == own else each) for each in listeners.all
        ),
        "advertised.listeners": ",".join(
            str(advertised[each.name]) for each in listeners.all if each.name in advertised
        ),
    }
    unknown = {
        Source.DYNAMIC_BROKER_CONFIG: view.image.broker_config(str(view.node_id)).overrides,
        Source.DYNAMIC_DEFAULT_BROKER_CONFIG: view.image.broker_config(ALL_BROKERS).overrides,
    }
    known = describe_broker(view.config)
    shown = [replace(entry, value=in_force.get(entry.name, entry.value)) for entry in known]
    return shown + describe_unknown(unknown)


def check_own_id(node_id: int, name: str) -> None:
    """Each broker knows its own settings only: the client must ask the broker that it means."""
    if parse_broker_id(name) != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {node_id}, not {name!r}")


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


def _result(request: wire.DescribeConfigsRequest, entry: ConfigEntry) -> wire.DescribeConfigsResourceResult:
    return wire.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.type is ConfigType.PASSWORD,
        synonyms=[
            wire.DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
