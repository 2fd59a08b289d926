"""Changes of settings at run time, decided on an image: of a topic, of one broker, of all brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from forebay.config import (
    DRAINED,
    BrokerConfig,
    ConfigType,
    broker_definition,
    format_value,
    topic_key,
    topic_value,
    validate_broker_override,
    validate_topic_override,
)
from forebay.core.image import ALL_BROKERS, BrokerConfigPut, Change, ClusterImage, TopicConfigPut
from forebay.core.placement import staying
from forebay.core.topics import existing_topic
from forebay.errors import ConfigError, ErrorCode, KafkaError


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class AlterOp(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    name: str
    op: int
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    type: int
    name: str
    """A topic, or a broker's id, or nothing for all brokers."""


def replace_configs(
    image: ClusterImage, resource: Resource, configs: Sequence[tuple[str, str | None]]
) -> list[Change]:
    """AlterConfigs: these settings and no others."""
    _check_resource(image, resource)
    _check_unique([name for name, _ in configs])
    wanted: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} has no value; leave it out to reset it")
        wanted[_checked_name(resource, name, value)] = value
    return _difference(image, resource, wanted)


def alter_configs(
    image: ClusterImage, broker: BrokerConfig, resource: Resource, alterations: Sequence[Alteration]
) -> list[Change]:
    """IncrementalAlterConfigs: these settings change, the others stay."""
    _check_resource(image, resource)
    _check_unique([alteration.name for alteration in alterations])
    wanted = dict(overrides_of(image, resource))
    for alteration in alterations:
        _alter(broker, resource, wanted, alteration)
    return _difference(image, resource, wanted)


def taken_back(image: ClusterImage, broker: BrokerConfig, node_id: int) -> list[Change]:
    """A broker that was drained is started again: whoever did that wants it to work."""
    if node_id not in image.brokers or node_id in staying(image):
        return []
    back = Alteration(name=DRAINED, op=AlterOp.SUBTRACT, value=str(node_id))
    return alter_configs(image, broker, Resource(type=ResourceType.BROKER, name=""), [back])


def overrides_of(image: ClusterImage, resource: Resource) -> Mapping[str, str]:
    if resource.type == ResourceType.TOPIC:
        return image.topic_config(resource.name).overrides
    return image.broker_config(resource.name or ALL_BROKERS).overrides


def _check_resource(image: ClusterImage, resource: Resource) -> None:
    if resource.type == ResourceType.TOPIC:
        existing_topic(image, resource.name)
    elif resource.type == ResourceType.BROKER:
        check_broker_name(image, resource.name)
    else:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource.type} has no settings here; use topic or broker",
        )


def check_broker_name(image: ClusterImage, name: str) -> None:
    if name and not (name.isascii() and name.isdigit() and int(name) in image.brokers):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}")


def _check_unique(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)} is given twice")


def _alter(broker: BrokerConfig, resource: Resource, wanted: dict[str, str], alteration: Alteration) -> None:
    name = _canonical(resource, alteration.name) if alteration.name not in wanted else alteration.name
    if alteration.op == AlterOp.DELETE:
        wanted.pop(name, None)
        return
    if alteration.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} has no value; to reset it, delete it")
    if alteration.op == AlterOp.SET:
        value = alteration.value
    elif alteration.op in (AlterOp.APPEND, AlterOp.SUBTRACT):
        value = _edit_list(resource, name, _in_force(broker, resource, wanted, name), alteration)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: unknown operation {alteration.op}")
    wanted[_checked_name(resource, name, value)] = value


def _edit_list(resource: Resource, name: str, current: str, alteration: Alteration) -> str:
    definition = (
        topic_key(name).definition if resource.type == ResourceType.TOPIC else broker_definition(name)
    )
    if definition.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is no list: set it instead")
    present = [item.strip() for item in current.split(",") if item.strip()]
    given = [item.strip() for item in (alteration.value or "").split(",") if item.strip()]
    if alteration.op == AlterOp.APPEND:
        return ",".join(dict.fromkeys(present + given))
    return ",".join(item for item in present if item not in given)


def _in_force(broker: BrokerConfig, resource: Resource, wanted: Mapping[str, str], name: str) -> str:
    if resource.type == ResourceType.TOPIC:
        return topic_value(broker, wanted, name)
    return wanted.get(name) or format_value(broker.get(name)) or ""


def _canonical(resource: Resource, name: str) -> str:
    try:
        if resource.type == ResourceType.TOPIC:
            return topic_key(name).definition.name
        return broker_definition(name).name
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _checked_name(resource: Resource, name: str, value: str) -> str:
    try:
        if resource.type == ResourceType.TOPIC:
            validate_topic_override(name, value)
        else:
            validate_broker_override(name, value)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return _canonical(resource, name)


def _difference(image: ClusterImage, resource: Resource, wanted: dict[str, str]) -> list[Change]:
    if wanted == overrides_of(image, resource):
        return []
    if resource.type == ResourceType.TOPIC:
        return [TopicConfigPut(name=resource.name, overrides=wanted)]
    return [BrokerConfigPut(name=resource.name or ALL_BROKERS, overrides=wanted)]
