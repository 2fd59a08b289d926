"""Which topics may keep old segments in an object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from forebay.config import BrokerConfig, TopicConfig
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.topics.topic_requests import NewTopic

RESTORE = "forebay.remote.restore"
"""In a request for a new topic: the id of a topic in the object store, which the new one goes on with. It is
not kept as a setting."""

_ENABLE = "remote.storage.enable"


def check_tiers(
    name: str, broker: BrokerConfig, overrides: Mapping[str, str], before: Mapping[str, str]
) -> None:
    """Raises ConfigError if the settings of a topic contradict each other, or ask for what is not there."""
    was_enabled = before.get(_ENABLE, "").strip().lower() == "true"
    if overrides.get(_ENABLE, "").strip().lower() != "true":
        if was_enabled:
            raise ConfigError(
                f"{name!r} has messages in the object store, so {_ENABLE} cannot be taken back: set "
                "remote.log.copy.disable=true to copy no more"
            )
        return
    config = TopicConfig.resolve(broker, overrides)
    if broker.tiers.url is None and not was_enabled:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker: start all brokers with "
            "forebay.remote.url (or forebay serve --remote)"
        )
    if config.compacted:
        raise ConfigError(
            f"{_ENABLE} is not for compacted topics: what is in the object store is never compacted. Use "
            "cleanup.policy=delete"
        )
    if name in INTERNAL_TOPICS:
        raise ConfigError(f"{name!r} is a topic of the brokers, which stays on their disks")
    _check_local(config)


def _check_local(config: TopicConfig) -> None:
    for local, whole, key in (
        (config.local_retention_ms, config.retention_ms, "retention.ms"),
        (config.local_retention_bytes, config.retention_bytes, "retention.bytes"),
    ):
        if whole >= 0 and (local == -1 or local > whole):
            raise ConfigError(f"local.{key} must not be more than {key}, which is {whole}: use less, or -2")


def check_adopted(image: ClusterImage, new: NewTopic) -> None:
    """Raises KafkaError if a topic of the object store cannot be restored here."""
    found = image.topic_names.get(new.topic_id)
    if found is not None:
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"the topic in the object store is topic {found!r} of this cluster: it is there already",
        )
    if new.topic_id in image.deleted:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "the topic was deleted in this cluster, and its objects are being removed: it cannot be restored",
        )
    count = len(new.assignment) or new.num_partitions
    if count != len(new.adopted):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic in the object store has {len(new.adopted)} partitions, not {count}",
        )
