"""Features of a cluster: what is in force may be asked for, anything else is refused as Kafka does."""

from __future__ import annotations

import pytest

from forebay.core.cluster.features import (
    FEATURES,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    Update,
    refusals,
)


@pytest.mark.parametrize("upgrade_type", [UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_what_is_in_force_may_be_asked_for(upgrade_type: int) -> None:
    updates = [Update(name, level, upgrade_type) for name, level in FEATURES.items()]
    assert refusals(updates) == dict.fromkeys(FEATURES)


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (Update("group.version", 2, UPGRADE), "only support version 1"),
        (Update("group.version", 0, UPGRADE), "without setting the upgrade type"),
        (Update("transaction.version", 1, SAFE_DOWNGRADE), "only support version 2"),
        (Update("transaction.version", 1, UNSAFE_DOWNGRADE), "only support version 2"),
        (Update("transaction.version", 2, 7), "upgrade type"),
        (Update("transaction.version", -1, UPGRADE), "less than 0"),
        (Update("kraft.version", 1, UPGRADE), "do not support kraft.version"),
    ],
)
def test_anything_else_is_refused_by_name(update: Update, reason: str) -> None:
    (message,) = refusals([update]).values()
    assert message is not None and reason in message
    assert message.startswith(f"Invalid update version {update.level} for feature {update.feature}. ")
