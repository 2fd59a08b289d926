"""Requests that alter settings, made canonical before a guard, a check or the audit log sees them.

A setting may name a topic: the dead letter topic, or the source of a view. White space around values is
removed here, once. An earlier check would see " audit", while the broker uses "audit". For the same reason
the values are stored trimmed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.core.guards.guard import changed
from forebay.wire.api_keys import ApiKey


def _with_trimmed_values(owners: str) -> Callable[[Any], Any]:
    """`owners`: the field of a request that lists the owners of settings."""

    def canonical(request: Any) -> Any:
        items = getattr(request, owners)
        if all(_is_trimmed(config.value) for item in items for config in item.configs):
            return request
        trimmed = [changed(item, configs=[_trimmed(config) for config in item.configs]) for item in items]
        return changed(request, **{owners: trimmed})

    return canonical


def _is_trimmed(value: str | None) -> bool:
    return value is None or value == value.strip()


def _trimmed(config: Any) -> Any:
    return config if _is_trimmed(config.value) else changed(config, value=config.value.strip())


CANONICAL: dict[int, Callable[[Any], Any]] = {
    ApiKey.CREATE_TOPICS: _with_trimmed_values("topics"),
    ApiKey.ALTER_CONFIGS: _with_trimmed_values("resources"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _with_trimmed_values("resources"),
}
"""By the API's key: makes a request canonical."""
