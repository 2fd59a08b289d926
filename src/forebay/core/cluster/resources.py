"""The resources that have settings, by their type in the protocol: topics, brokers and groups.

A `Kind` knows which names of its type exist, where their settings are in an image, which settings there are,
and the change that replaces them. `config_changes.py` uses it to decide what an administrator's request
changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import IntEnum

from forebay.config import (
    LISTENER_PREFIX,
    BrokerConfig,
    Definition,
    TopicConfig,
    altered_broker_definition,
    broker_definition,
    check_group_overrides,
    format_value,
    group_definition,
    is_unknown,
    topic_key,
    validate_broker_override,
)
from forebay.core.cluster.image import ALL_BROKERS, ClusterImage
from forebay.core.cluster.image_changes import Change, ConfigOwner, ConfigPut
from forebay.core.cluster.topics.topic_requests import existing_topic, validate_topic_name
from forebay.errors import ConfigError, ErrorCode, KafkaError
from forebay.lazy import load

_ID_DIGITS_MAX = 10
_TIERED = "remote.storage.enable"
UNKNOWN_SETTINGS_MAX = 100
"""The maximum of unknown settings of one owner: plugins of Kafka have fewer."""


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Kind(ABC):
    owner: ConfigOwner
    invalid = ErrorCode.INVALID_CONFIG
    """The error for a setting that cannot be altered, or not to this value."""

    @abstractmethod
    def find(self, image: ClusterImage, name: str, /) -> str:
        """The name that the settings are kept under; raises KafkaError when there is no such resource."""

    def overrides(self, image: ClusterImage, name: str) -> Mapping[str, str]:
        return image.config(self.owner, name).overrides

    def put(self, name: str, overrides: Mapping[str, str]) -> Change:
        return ConfigPut(owner=self.owner, name=name, overrides=overrides)

    @abstractmethod
    def definition(self, key: str) -> Definition:
        """Raises ConfigError for a setting that does not exist."""

    @abstractmethod
    def inherited(self, image: ClusterImage, name: str, key: str, /) -> str:
        """The value of a setting that is not set, from what all brokers share: config files do not count."""

    def validate(self, key: str, value: str) -> None:
        """Raises ConfigError for a value that is not allowed."""
        self.definition(key).parse(value)

    def check(  # noqa: B027 most need none
        self, image: ClusterImage, name: str, config: BrokerConfig, overrides: Mapping[str, str], /
    ) -> None:
        """Raises ConfigError if values contradict each other, or do not fit their owner."""


class TopicKind(Kind):
    owner = ConfigOwner.TOPIC

    def find(self, image: ClusterImage, name: str, /) -> str:
        validate_topic_name(name)
        return existing_topic(image, name).name

    def definition(self, key: str) -> Definition:
        return topic_key(key).definition

    def inherited(self, image: ClusterImage, _: str, key: str, /) -> str:
        found = topic_key(key)
        if not found.fallbacks:
            return format_value(found.definition.default) or ""
        return _of_all_brokers(image, broker_definition(found.fallbacks[0][0]))

    def check(
        self, image: ClusterImage, name: str, config: BrokerConfig, overrides: Mapping[str, str], /
    ) -> None:
        before = self.overrides(image, name)
        if _TIERED in overrides or _TIERED in before:
            load("forebay.core.cluster.topics.tier_rules:check_tiers")(name, config, overrides, before)
        topic, settings = image.topics[name], TopicConfig.resolve(config, overrides)
        folding = topic.record.folding
        if folding is None or topic.closed_from == len(topic.partitions):
            return
        if folding.copied is None and settings.compacted:
            raise ConfigError(
                f"partitions of {name!r} are being folded; it can be compacted when they are gone"
            )
        if folding.copied is not None and not settings.compacted:
            raise ConfigError(
                f"partitions of {name!r} are being copied; it stays compacted until they are gone"
            )
        if folding.copied is not None and settings.delay_enable:
            raise ConfigError(
                f"partitions of {name!r} are being copied; it can have delays when they are gone"
            )


class BrokerKind(Kind):
    owner = ConfigOwner.BROKER
    invalid = ErrorCode.INVALID_REQUEST  # as in Kafka

    def find(self, image: ClusterImage, name: str, /) -> str:
        broker_id = parse_broker_id(name) if name else None
        if broker_id is not None and broker_id not in image.brokers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no broker {broker_id}")
        return ALL_BROKERS if broker_id is None else str(broker_id)

    def definition(self, key: str) -> Definition:
        return altered_broker_definition(key)

    def inherited(self, image: ClusterImage, name: str, key: str, /) -> str:
        definition = self.definition(key)
        if name == ALL_BROKERS:
            return format_value(definition.default) or ""
        return _of_all_brokers(image, definition)

    def validate(self, key: str, value: str) -> None:
        validate_broker_override(key, value)

    def check(self, _: ClusterImage, name: str, __: BrokerConfig, overrides: Mapping[str, str], /) -> None:
        of_listeners = [key for key in overrides if key.startswith(LISTENER_PREFIX)]
        if of_listeners and name == ALL_BROKERS:
            raise ConfigError(
                f"Cannot update these configs at default cluster level: {', '.join(of_listeners)}. Files of"
                " certificates are each broker's own: name a broker"
            )
        unknown = sum(map(is_unknown, overrides))
        if unknown > UNKNOWN_SETTINGS_MAX:
            raise ConfigError(f"{unknown} settings that no broker knows: {UNKNOWN_SETTINGS_MAX} can be kept")


class GroupKind(Kind):
    owner = ConfigOwner.GROUP

    def find(self, _: ClusterImage, name: str, /) -> str:
        # A group need not exist: its settings wait for it.
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the group's name must not be empty")
        return name

    def definition(self, key: str) -> Definition:
        return group_definition(key)

    def inherited(self, _: ClusterImage, __: str, key: str, /) -> str:
        return format_value(self.definition(key).default) or ""

    def check(self, _: ClusterImage, __: str, config: BrokerConfig, overrides: Mapping[str, str], /) -> None:
        check_group_overrides(config.groups, overrides)


_KINDS: dict[int, Kind] = {
    ResourceType.TOPIC: TopicKind(),
    ResourceType.BROKER: BrokerKind(),
    ResourceType.GROUP: GroupKind(),
}


def kind_of(resource_type: int) -> Kind:
    kind = _KINDS.get(resource_type)
    if kind is None:
        raise unsupported(resource_type)
    return kind


def check_stored(owner: ConfigOwner, overrides: Mapping[str, str]) -> None:
    """Refuse values that this version cannot read. Unknown settings do no harm.

    Raises ConfigError.
    """
    kind = next(each for each in _KINDS.values() if each.owner is owner)
    for key, text in overrides.items():
        try:
            definition = kind.definition(key)
        except ConfigError:
            continue
        definition.parse(text)


def unsupported(resource_type: int) -> KafkaError:
    known = resource_type in list(ResourceType)
    named = ResourceType(resource_type).name if known else f"resource type {resource_type}"
    usable = ", ".join(ResourceType(each).name for each in _KINDS)
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{named} has no settings to do this with; use {usable}")


def parse_broker_id(name: str) -> int:
    """Parse a broker id in any spelling, such as "01"; raises KafkaError for anything else."""
    if not (name.isascii() and name.isdigit() and len(name) <= _ID_DIGITS_MAX):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name[:50]!r} is not the id of a broker")
    return int(name)


def _of_all_brokers(image: ClusterImage, definition: Definition) -> str:
    common = image.broker_config(ALL_BROKERS).overrides.get(definition.name)
    return common if common is not None else format_value(definition.default) or ""
