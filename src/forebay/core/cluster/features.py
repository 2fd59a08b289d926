"""Kafka's features of a cluster, at the levels that this version of the program has.

In Kafka an administrator raises a feature's level when all brokers have been upgraded. Here all brokers of a
version serve the same levels. A request for the present level succeeds. Any other is refused as Kafka's
controller refuses an unsupported level.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

FEATURES = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""Java producers raise their epoch with every transaction only where transaction.version is 2."""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class Update(NamedTuple):
    feature: str
    level: int
    upgrade_type: int


def refusals(updates: Iterable[Update]) -> dict[str, str | None]:
    """Why each update is refused; None where there is nothing to change."""
    return {update.feature: _refusal(update) for update in updates}


def _refusal(update: Update) -> str | None:
    reason = _reason(update)
    if reason is None:
        return None
    return f"Invalid update version {update.level} for feature {update.feature}. {reason}"


def _reason(update: Update) -> str | None:
    level = FEATURES.get(update.feature)
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if level is None:
        return f"The brokers do not support {update.feature}."
    if update.level < level and update.upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
            " unsafe downgrade."
        )
    if update.level != level:
        return f"The brokers only support version {level} of it, which is in force."
    return None
