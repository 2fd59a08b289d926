"""The settings of consumer groups and their offsets.

Some defaults differ from Kafka's. Sessions may be as short as a second: some clients and most tests use such
timeouts, and one process notices a lost member at no cost. The first rebalance of a group does not wait for
three seconds: that wait spares a large deployment a few rebalances when it starts, and costs everybody else
three seconds whenever a program or a test begins to consume. `__consumer_offsets` has few partitions because
each is a log of its own; the count is fixed when the topic is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay.config.keys.share import ShareGroupsConfig, share_groups_config
from forebay.config.values import INT_MAX, ConfigType, Definition, Value, int_key

ASSIGNORS = ("uniform", "range")


def _not_empty(value: Value) -> None:
    if not value:
        raise ValueError(f"name at least one of {', '.join(ASSIGNORS)}")


GROUP_KEYS = (
    int_key(
        "group.min.session.timeout.ms", 1_000, "The shortest session timeout that a member may ask for.", 1
    ),
    int_key(
        "group.max.session.timeout.ms", 1_800_000, "The longest session timeout that a member may ask for.", 1
    ),
    int_key(
        "group.initial.rebalance.delay.ms",
        0,
        "How long an empty group waits for more members before its first rebalance.",
        0,
    ),
    int_key("group.max.size", INT_MAX, "The most members of a classic group.", 1),
    int_key(
        "group.consumer.session.timeout.ms",
        45_000,
        "A member of a group whose assignment the broker makes is dropped when silent for this long.",
        1,
    ),
    int_key("group.consumer.heartbeat.interval.ms", 5_000, "How often members of such a group report.", 1),
    int_key(
        "group.consumer.min.session.timeout.ms",
        1_000,
        "The shortest consumer.session.timeout.ms that may be set for such a group.",
        1,
    ),
    int_key(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "The longest consumer.session.timeout.ms that may be set for such a group.",
        1,
    ),
    int_key(
        "group.consumer.min.heartbeat.interval.ms",
        100,
        "The shortest consumer.heartbeat.interval.ms that may be set for such a group.",
        1,
    ),
    int_key(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "The longest consumer.heartbeat.interval.ms that may be set for such a group.",
        1,
    ),
    int_key("group.consumer.max.size", INT_MAX, "The most members of such a group.", 1),
    Definition(
        name="group.consumer.assignors",
        type=ConfigType.LIST,
        default=ASSIGNORS,
        choices=ASSIGNORS,
        validate=_not_empty,
        doc="The assignors of such groups; the first is used when a member names none.",
    ),
    int_key(
        "offsets.topic.num.partitions", 4, "Partitions of __consumer_offsets, when it is created.", 1, 10_000
    ),
    int_key("offsets.topic.segment.bytes", 104_857_600, "The segment size of __consumer_offsets.", 14),
    int_key(
        "offsets.retention.minutes",
        10_080,
        "How long the offsets of a group without members, or of a topic no member subscribes to, are kept.",
        1,
    ),
    Definition(
        name="offsets.retention.check.interval.ms",
        type=ConfigType.LONG,
        default=600_000,
        minimum=1,
        doc="How often offsets that have outlived their retention are looked for.",
    ),
    int_key("offset.metadata.max.bytes", 4_096, "The longest note that may be committed with an offset.", 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsConfig:
    min_session_timeout_ms: int = 1_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_size: int = INT_MAX
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_session_timeout_ms: int = 1_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_min_heartbeat_interval_ms: int = 100
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = INT_MAX
    consumer_assignors: tuple[str, ...] = ASSIGNORS
    offsets_partitions: int = 4
    offsets_segment_bytes: int = 104_857_600
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    share: ShareGroupsConfig = field(default_factory=ShareGroupsConfig)


def groups_config(values: Mapping[str, Any]) -> GroupsConfig:
    return GroupsConfig(
        min_session_timeout_ms=values["group.min.session.timeout.ms"],
        max_session_timeout_ms=values["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=values["group.initial.rebalance.delay.ms"],
        max_size=values["group.max.size"],
        consumer_session_timeout_ms=values["group.consumer.session.timeout.ms"],
        consumer_heartbeat_interval_ms=values["group.consumer.heartbeat.interval.ms"],
        consumer_min_session_timeout_ms=values["group.consumer.min.session.timeout.ms"],
        consumer_max_session_timeout_ms=values["group.consumer.max.session.timeout.ms"],
        consumer_min_heartbeat_interval_ms=values["group.consumer.min.heartbeat.interval.ms"],
        consumer_max_heartbeat_interval_ms=values["group.consumer.max.heartbeat.interval.ms"],
        consumer_max_size=values["group.consumer.max.size"],
        consumer_assignors=values["group.consumer.assignors"],
        offsets_partitions=values["offsets.topic.num.partitions"],
        offsets_segment_bytes=values["offsets.topic.segment.bytes"],
        offsets_retention_ms=values["offsets.retention.minutes"] * 60_000,
        offsets_retention_check_interval_ms=values["offsets.retention.check.interval.ms"],
        offset_metadata_max_bytes=values["offset.metadata.max.bytes"],
        share=share_groups_config(values),
    )
