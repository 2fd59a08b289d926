"""The settings of consumer groups and their offsets.

Some defaults differ from Kafka's. Sessions may be as short as a second: some clients and most tests use such
timeouts, and detecting a lost member costs nothing in a single process. The first rebalance of a group does
not wait for three seconds: that wait saves a large deployment a few rebalances when it starts, and costs
everybody else three seconds whenever a program or a test begins to consume. `__consumer_offsets` has few
partitions because each is a separate log; the count is fixed when the topic is created.
"""

from __future__ import annotations

from forebay.config.declared_settings import settings_group, subgroup
from forebay.config.keys.coordinators.group_bound import bound_key
from forebay.config.keys.coordinators.share import ShareGroupsConfig
from forebay.config.values import INT_MAX, Value, int_key, list_key, long_key

ASSIGNORS = ("uniform", "range")


def _not_empty(value: Value) -> None:
    if not value:
        raise ValueError(f"name at least one of {', '.join(ASSIGNORS)}")


@settings_group
class GroupsConfig:
    min_session_timeout_ms: int = int_key(
        "group.min.session.timeout.ms", 1_000, "The shortest session timeout that a member may ask for.", 1
    )
    max_session_timeout_ms: int = int_key(
        "group.max.session.timeout.ms", 1_800_000, "The longest session timeout that a member may ask for.", 1
    )
    initial_rebalance_delay_ms: int = int_key(
        "group.initial.rebalance.delay.ms",
        0,
        "How long an empty group waits for more members before its first rebalance.",
        0,
    )
    max_size: int = int_key("group.max.size", INT_MAX, "The most members of a classic group.", 1)
    consumer_session_timeout_ms: int = int_key(
        "group.consumer.session.timeout.ms",
        45_000,
        "A member of a group whose assignment the broker makes is dropped when silent for this long.",
        1,
    )
    consumer_heartbeat_interval_ms: int = int_key(
        "group.consumer.heartbeat.interval.ms", 5_000, "How often members of such a group report.", 1
    )
    consumer_min_session_timeout_ms: int = bound_key("group.consumer.min.session.timeout.ms", 1_000, 1)
    consumer_max_session_timeout_ms: int = bound_key("group.consumer.max.session.timeout.ms", 60_000, 1)
    consumer_min_heartbeat_interval_ms: int = bound_key("group.consumer.min.heartbeat.interval.ms", 100, 1)
    consumer_max_heartbeat_interval_ms: int = bound_key("group.consumer.max.heartbeat.interval.ms", 15_000, 1)
    consumer_assignment_interval_ms: int = int_key(
        "group.consumer.assignment.interval.ms",
        1_000,
        "How long the partitions of members that leave such a group wait for more members to leave, before "
        "they are given to others. Members that join get partitions at once, those that join a large group "
        "together with others.",
        0,
    )
    consumer_min_assignment_interval_ms: int = bound_key("group.consumer.min.assignment.interval.ms", 0, 0)
    consumer_max_assignment_interval_ms: int = bound_key(
        "group.consumer.max.assignment.interval.ms", 15_000, 0
    )
    consumer_max_size: int = int_key(
        "group.consumer.max.size", INT_MAX, "The most members of such a group.", 1
    )
    consumer_assignors: tuple[str, ...] = list_key(
        "group.consumer.assignors",
        ASSIGNORS,
        "The assignors of such groups; the first is used when a member names none.",
        choices=ASSIGNORS,
        validate=_not_empty,
    )
    pattern_size_max: int = int_key(
        "forebay.group.pattern.size.max",
        2_000,
        "The instructions that the pattern of a new member of such a group may be compiled to. Each may be a "
        "step for each character of each topic that the member may describe.",
        1,
        1_000_000,
    )
    offsets_partitions: int = int_key(
        "offsets.topic.num.partitions", 4, "Partitions of __consumer_offsets, when it is created.", 1, 10_000
    )
    offsets_segment_bytes: int = int_key(
        "offsets.topic.segment.bytes", 104_857_600, "The segment size of __consumer_offsets.", 14
    )
    offsets_retention_minutes: int = int_key(
        "offsets.retention.minutes",
        10_080,
        "How long the offsets of a group without members, or of a topic no member subscribes to, are kept.",
        1,
    )
    offsets_retention_check_interval_ms: int = long_key(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often offsets that have outlived their retention are looked for.",
        1,
    )
    offset_metadata_max_bytes: int = int_key(
        "offset.metadata.max.bytes", 4_096, "The longest note that may be committed with an offset.", 0
    )
    share: ShareGroupsConfig = subgroup(ShareGroupsConfig)

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
