"""The settings of client quotas. The quotas themselves are in the store (`forebay quota`)."""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import INT_MAX, int_key


@settings_group
class QuotaConfig:
    windows: int = int_key(
        "quota.window.num",
        11,
        "With quota.window.size.seconds: a client may use at once what its quota allows in all windows but"
        " one, which is 10 seconds.",
        1,
        10_000,
    )
    window_s: int = int_key(
        "quota.window.size.seconds",
        1,
        "The length of a window.",
        1,
        INT_MAX,
    )
    mutation_windows: int = int_key(
        "controller.quota.window.num",
        11,
        "With controller.quota.window.size.seconds: a client may create and delete at once as many"
        " partitions as controller_mutation_rate allows in all windows.",
        1,
        10_000,
    )
    mutation_window_s: int = int_key(
        "controller.quota.window.size.seconds", 1, "The length of such a window.", 1, INT_MAX
    )
    throttle_ms_max: int = int_key(
        "forebay.quota.throttle.max.ms",
        30_000,
        "The longest that a client over its quota is made to wait. Keep it below the time that clients wait"
        " for an answer.",
        1,
        600_000,
    )
