"""Changes of settings at run time, decided on an image: for a topic, a group, one broker or all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum

from forebay.config import DRAINED, BrokerConfig, ConfigType
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, ConfigOwner, ConfigPut
from forebay.core.cluster.placement import drained_brokers, staying
from forebay.core.cluster.resources import Kind, ResourceType, kind_of
from forebay.errors import ConfigError, ErrorCode, KafkaError
from forebay.lazy import dataclass


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
    """A topic, a group, a broker's id, or an empty string for all brokers."""


def replace_configs(
    image: ClusterImage,
    broker: BrokerConfig,
    resource: Resource,
    configs: Sequence[tuple[str, str | None]],
) -> list[Change]:
    """AlterConfigs: these settings and no others."""
    kind = kind_of(resource.type)
    name = kind.find(image, resource.name)
    check_unique([key for key, _ in configs])
    wanted: dict[str, str] = {}
    for key, value in configs:
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} has no value; leave it out to reset it")
        wanted[_checked_name(kind, key, value)] = value
    return _difference(image, broker, kind, name, wanted)


def alter_configs(
    image: ClusterImage, broker: BrokerConfig, resource: Resource, alterations: Sequence[Alteration]
) -> list[Change]:
    """IncrementalAlterConfigs: these settings change, the others stay."""
    kind = kind_of(resource.type)
    name = kind.find(image, resource.name)
    check_unique([alteration.name for alteration in alterations])
    wanted = dict(kind.overrides(image, name))
    for alteration in alterations:
        if alteration.op == AlterOp.DELETE:
            _delete(kind, wanted, alteration.name)
        else:
            _set(image, kind, name, wanted, alteration)
    return _difference(image, broker, kind, name, wanted)


def taken_back(image: ClusterImage, broker: BrokerConfig, node_id: int) -> list[Change]:
    """Make a drained broker eligible for partitions again, because it was started again."""
    if node_id not in image.brokers or node_id in staying(image):
        return []
    back = Alteration(name=DRAINED, op=AlterOp.SUBTRACT, value=str(node_id))
    return alter_configs(image, broker, Resource(type=ResourceType.BROKER, name=""), [back])


def unregistered(image: ClusterImage, broker: BrokerConfig, node_id: int) -> list[Change]:
    """A broker was stopped for good. Its registration has ended with it; what is left is that it was drained,
    and settings of its own.

    Replicas that it still has stay assigned to it, as in Kafka, until they are moved.
    """
    if node_id in image.registered:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"broker {node_id} is running, and would register again: stop it first"
        )
    drained, own = drained_brokers(image), image.broker_config(str(node_id)).overrides
    if not (node_id in drained or own) and not any(
        node_id in state.replicas for topic in image.topics.values() for state in topic.partitions
    ):
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {node_id} is not currently registered"
        )
    changes: list[Change] = []
    if own:
        changes.append(ConfigPut(owner=ConfigOwner.BROKER, name=str(node_id), overrides={}))
    if node_id in drained:
        gone = Alteration(name=DRAINED, op=AlterOp.SUBTRACT, value=str(node_id))
        changes += alter_configs(image, broker, Resource(type=ResourceType.BROKER, name=""), [gone])
    return changes


def check_unique(names: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)} is given twice")


def _delete(kind: Kind, wanted: dict[str, str], key: str) -> None:
    """Delete a setting. One that is not set, or not even known, counts as deleted: tools clean up blindly."""
    wanted.pop(key, None)
    try:
        wanted.pop(kind.definition(key).name, None)
    except ConfigError:
        return


def _set(image: ClusterImage, kind: Kind, name: str, wanted: dict[str, str], alteration: Alteration) -> None:
    key, value = alteration.name, alteration.value
    if value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} has no value; to reset it, delete it")
    if alteration.op in (AlterOp.APPEND, AlterOp.SUBTRACT):
        key = _known_list(kind, key)
        current = wanted[key] if key in wanted else kind.inherited(image, name, key)
        value = _edit_list(current, alteration.op, value)
    elif alteration.op != AlterOp.SET:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}: unknown operation {alteration.op}")
    wanted[_checked_name(kind, key, value)] = value


def _known_list(kind: Kind, key: str) -> str:
    try:
        definition = kind.definition(key)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if definition.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is no list: set it instead")
    return definition.name


def _edit_list(current: str, op: int, value: str) -> str:
    present, given = _items(current), dict.fromkeys(_items(value))
    if op == AlterOp.APPEND:
        return ",".join(dict.fromkeys([*present, *given]))
    return ",".join(item for item in present if item not in given)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _checked_name(kind: Kind, key: str, value: str) -> str:
    try:
        kind.validate(key, value)
        return kind.definition(key).name
    except ConfigError as error:
        raise KafkaError(kind.invalid, str(error)) from None


def _difference(
    image: ClusterImage, broker: BrokerConfig, kind: Kind, name: str, wanted: Mapping[str, str]
) -> list[Change]:
    if wanted == kind.overrides(image, name):
        return []
    try:
        kind.check(image, name, broker, wanted)
    except ConfigError as error:
        raise KafkaError(kind.invalid, str(error)) from None
    return [kind.put(name, wanted)]
