"""Which topics may keep old segments in an object store."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.config import BrokerConfig, TopicConfig
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.errors import ConfigError

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
