"""The settings of delegation tokens, with Kafka's names. Give every broker of a cluster the same."""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import Secret, bool_key, int_key, long_key, password_key

_HOUR_MS = 3600 * 1000
_DAY_MS = 24 * _HOUR_MS
TOKENS_OF_OWNER_MAX = 100
"""All tokens of a user are deleted together with the user, in one transaction of the store."""


@settings_group
class DelegationTokenConfig:
    is_enabled: bool = bool_key(
        "forebay.delegation.tokens.enable",
        True,
        "Whether users may create delegation tokens and log in with them, where a listener has SCRAM.",
    )
    key: Secret | None = password_key(
        "delegation.token.secret.key",
        None,
        "With it the secret of a token is derived from its id, as in Kafka, and its owner can have it shown"
        " again. Without it the secret is random and shown once. Kafka's older name is understood too.",
    )
    lifetime_ms_max: int = long_key(
        "delegation.token.max.lifetime.ms", 7 * _DAY_MS, "A token cannot be renewed beyond this age.", 1
    )
    expiry_ms: int = long_key(
        "delegation.token.expiry.time.ms",
        _DAY_MS,
        "A token that was not renewed for this time is no longer valid.",
        1,
    )
    expiry_check_interval_ms: int = long_key(
        "delegation.token.expiry.check.interval.ms",
        _HOUR_MS,
        "How often tokens that are no longer valid are removed from the store.",
        1,
    )
    count_max: int = int_key(
        "forebay.delegation.tokens.max",
        10_000,
        "How many tokens there may be. Beyond that none is created until others have ended.",
        1,
        100_000,
    )
    count_of_owner_max: int = int_key(
        "forebay.delegation.tokens.per.owner.max",
        TOKENS_OF_OWNER_MAX,
        "How many tokens one user may have.",
        1,
        TOKENS_OF_OWNER_MAX,
    )
    changes_per_second_max: int = int_key(
        "forebay.delegation.token.changes.per.second",
        10,
        "How many tokens one user may create, renew and end in a second, ten times as many at once. Each is a"
        " write to the store. Beyond that they wait.",
        1,
        10_000,
    )
    renewers_max: int = int_key(
        "forebay.delegation.token.renewers.max",
        20,
        "How many users may be named as renewers of one token.",
        0,
        1_000,
    )
