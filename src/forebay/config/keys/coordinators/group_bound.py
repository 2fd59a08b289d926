"""Settings of a broker that limit what may be set for a single group."""

from __future__ import annotations

from typing import Any

from forebay.config.values import int_key

_TIMES = {"min": "shortest", "max": "longest"}
_COUNTS = {"min": "smallest", "max": "largest"}


def bound_key(name: str, default: int, low: int, high: int | None = None) -> Any:
    """The bound of a group's setting. Its name has `group.` in front and `min.` or `max.` inside."""
    _, protocol, bound, setting = name.split(".", 3)
    word = (_TIMES if name.endswith(".ms") else _COUNTS)[bound]
    return int_key(name, default, f"The {word} {protocol}.{setting} that may be set for a group.", low, high)
