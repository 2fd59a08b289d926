"""The settings of share coordinators.

`__share_group_state` has few partitions because each is a separate log; the count is fixed when the topic is
created.
"""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import int_key


@settings_group
class ShareCoordinatorConfig:
    state_partitions: int = int_key(
        "share.coordinator.state.topic.num.partitions",
        4,
        "Partitions of __share_group_state, when it is created.",
        1,
        10_000,
    )
    state_segment_bytes: int = int_key(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        "The segment size of __share_group_state.",
        14,
    )
    updates_per_snapshot: int = int_key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "How many updates of a share partition's state are written before the whole state is.",
        0,
        500,
    )
    cold_interval_ms: int = int_key(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "The state of a share partition that was not written as a whole for this long is written again when "
        "most of __share_group_state could be deleted but for it.",
        1,
    )
    write_timeout_ms: int = int_key(
        "share.coordinator.write.timeout.ms",
        5_000,
        "How long an acknowledgement waits until the share coordinator has persisted it.",
        1,
    )
    prune_interval_ms: int = int_key(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "How often records of __share_group_state that nobody needs any more are deleted.",
        1,
    )
