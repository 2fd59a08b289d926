"""Settings of topics, brokers and groups: reading and changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay.operations.client import REQUEST_SECONDS, settle

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def read_configs(admin: AdminClient, resource: str, name: str) -> list[dict[str, Any]]:
    """Every setting of the resource, by name."""
    from confluent_kafka.admin import ConfigResource

    wanted = ConfigResource(resource, name)
    described = settle(admin.describe_configs([wanted], request_timeout=REQUEST_SECONDS)[wanted])
    return [
        {
            "name": key,
            "value": entry.value,
            "source": source_name(entry.source),
            "read_only": entry.is_read_only,
        }
        for key, entry in sorted(described.items())
    ]


def alter_configs(
    admin: AdminClient, resource: str, name: str, settings: Sequence[tuple[str, str]], deleted: Sequence[str]
) -> None:
    """Change all of them or none: the broker validates the whole request first."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings
    ]
    changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in deleted]
    wanted = ConfigResource(resource, name, incremental_configs=changes)
    settle(admin.incremental_alter_configs([wanted], request_timeout=REQUEST_SECONDS)[wanted])


def source_name(source: Any) -> str:
    from confluent_kafka.admin import ConfigSource

    return ConfigSource(source).name
