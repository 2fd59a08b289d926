"""The settings of share groups: those of a broker (defaults, and bounds of each group's own), and of a group.

Some differ from Kafka's. Locks and sessions may be as short as a second, so that a short job goes to another
worker soon after its own has died. A change of members leads to a new assignment at once: Kafka waits for a
second to save large groups a few assignments. Dead-letter topics are created when they are needed: Kafka, by
default, does not create them, and drops dead letters that it cannot write. Here they would wait for the
topic, and after a while the group with them.
"""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.keys.coordinators.group_bound import bound_key
from forebay.config.offset_reset import check_offset_reset
from forebay.config.values import Value, bool_key, int_key, text_key

_HOUR_MS = 3_600_000
_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


def _no_internal_topic(value: Value) -> None:
    if str(value).startswith("__"):
        raise ValueError("names that begin with __ are those of internal topics, use another")


@settings_group
class ShareGroupsConfig:
    session_timeout_ms: int = int_key(
        "group.share.session.timeout.ms",
        45_000,
        "A member of a share group is dropped when silent for this long.",
        1,
    )
    min_session_timeout_ms: int = bound_key("group.share.min.session.timeout.ms", 1_000, 1)
    max_session_timeout_ms: int = bound_key("group.share.max.session.timeout.ms", 60_000, 1)
    heartbeat_interval_ms: int = int_key(
        "group.share.heartbeat.interval.ms", 5_000, "How often members of a share group report.", 1
    )
    min_heartbeat_interval_ms: int = bound_key("group.share.min.heartbeat.interval.ms", 100, 1)
    max_heartbeat_interval_ms: int = bound_key("group.share.max.heartbeat.interval.ms", 15_000, 1)
    max_size: int = int_key("group.share.max.size", 200, "The most members of a share group.", 1, 1_000)
    max_share_sessions: int = int_key(
        "group.share.max.share.sessions",
        2_000,
        "The most share sessions of a broker; one for each member that fetches from it.",
        1,
    )
    max_session_partitions: int = int_key(
        "group.share.max.session.partitions",
        10_000,
        "The most partitions of one share session: those that a member fetches from one broker.",
        1,
    )
    assignment_interval_ms: int = int_key(
        "group.share.assignment.interval.ms",
        0,
        "The least time between two assignments of a share group; 0 makes one at each change.",
        0,
    )
    min_assignment_interval_ms: int = bound_key("group.share.min.assignment.interval.ms", 0, 0)
    max_assignment_interval_ms: int = bound_key("group.share.max.assignment.interval.ms", 15_000, 0)
    initialize_retry_interval_ms: int = int_key(
        "group.share.initialize.retry.interval.ms",
        30_000,
        "How long a share group waits for the state of a partition to be made or deleted before it retries.",
        1,
    )
    record_lock_duration_ms: int = int_key(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a record belongs to the member that has acquired it.",
        1_000,
        _HOUR_MS,
    )
    min_record_lock_duration_ms: int = bound_key(
        "group.share.min.record.lock.duration.ms", 1_000, 1_000, _HOUR_MS
    )
    max_record_lock_duration_ms: int = bound_key(
        "group.share.max.record.lock.duration.ms", 60_000, 1_000, _HOUR_MS
    )
    delivery_count_limit: int = int_key(
        "group.share.delivery.count.limit", 5, "How often a record is delivered before it is given up.", 2, 25
    )
    min_delivery_count_limit: int = bound_key("group.share.min.delivery.count.limit", 2, 2, 25)
    max_delivery_count_limit: int = bound_key("group.share.max.delivery.count.limit", 10, 2, 25)
    partition_max_record_locks: int = int_key(
        "group.share.partition.max.record.locks",
        2_000,
        "The span of offsets, from a partition's first unfinished record on, that a share group delivers.",
        100,
        10_000,
    )
    min_partition_max_record_locks: int = bound_key(
        "group.share.min.partition.max.record.locks", 100, 100, 10_000
    )
    max_partition_max_record_locks: int = bound_key(
        "group.share.max.partition.max.record.locks", 4_000, 100, 10_000
    )
    dead_letter_topic_prefix: str = text_key(
        "errors.deadletterqueue.topic.name.prefix",
        "",
        "What the names of dead-letter topics have to begin with.",
        dynamic=True,
    )
    dead_letter_topics_are_created: bool = bool_key(
        "errors.deadletterqueue.auto.create.topics.enable",
        True,
        "Whether a dead-letter topic that does not exist is created, with the cluster's defaults, when the "
        "first dead letter has to go there. If not, dead letters wait for it.",
        dynamic=True,
    )


SHARE_GROUP_KEYS = (
    text_key(
        "share.auto.offset.reset",
        "latest",
        "Where a share group begins in a partition that is new to it: latest, earliest, or "
        "by_duration:DURATION before now, such as by_duration:PT1H.",
        validate=check_offset_reset,
        dynamic=True,
    ),
    text_key(
        "share.isolation.level",
        "read_uncommitted",
        "Whether a share group is given records of transactions that are open or aborted.",
        choices=_ISOLATION_LEVELS,
        dynamic=True,
    ),
    bool_key(
        "share.renew.acknowledge.enable",
        True,
        "Whether members may renew the locks on the records that they have acquired.",
        dynamic=True,
    ),
    int_key(
        "forebay.share.retry.backoff.ms",
        0,
        "How long a record that was released for the first time waits before it is delivered again; twice as "
        "long after each further delivery. 0 delivers it at once.",
        0,
        dynamic=True,
    ),
    int_key(
        "forebay.share.retry.backoff.max.ms",
        60_000,
        "The longest time that a released record waits before it is delivered again.",
        0,
        dynamic=True,
    ),
    int_key(
        "forebay.share.unreadable.timeout.ms",
        30_000,
        "How long a record that the leader's disk cannot read (a bad sector) is tried again before the group "
        "gives it up. It is waited for without end while the disk gives no other record either.",
        0,
        dynamic=True,
    ),
    bool_key(
        "forebay.share.record.limit.enable",
        False,
        "Whether a member never gets more records at once than it asks for, as if its client had chosen the "
        "acquire mode record_limit; otherwise it may get the rest of a batch too.",
        dynamic=True,
    ),
    text_key(
        "errors.deadletterqueue.topic.name",
        "",
        "The topic for records that were rejected or delivered too often; empty for none.",
        validate=_no_internal_topic,
        dynamic=True,
    ),
    bool_key(
        "errors.deadletterqueue.copy.record.enable",
        False,
        "Whether a dead letter carries key, value and headers of the record, or only where it came from.",
        dynamic=True,
    ),
)
"""Settings of a single group without a corresponding broker setting."""
