"""The metrics of what brokers hold: topics, groups, queues, logs on disks and in object stores."""

from __future__ import annotations

from forebay.broker.prometheus.families import EXPORTER, JMX, counter, gauge

TOPICS = (
    gauge(
        "kafka_topic_partitions",
        "Partitions of a topic; from the leader of its first one.",
        "topic",
        known_from=EXPORTER,
    ),
    gauge(
        "kafka_topic_partition_current_offset",
        "The high watermark; from the leader of the partition, like all that follow.",
        "topic",
        "partition",
        known_from=EXPORTER,
    ),
    gauge(
        "kafka_topic_partition_oldest_offset", "The first offset.", "topic", "partition", known_from=EXPORTER
    ),
    gauge(
        "kafka_topic_partition_leader",
        "The node id of the leader.",
        "topic",
        "partition",
        known_from=EXPORTER,
    ),
    gauge(
        "kafka_topic_partition_leader_is_preferred",
        "1 if the first replica leads.",
        "topic",
        "partition",
        known_from=EXPORTER,
    ),
    gauge("kafka_topic_partition_replicas", "Replicas.", "topic", "partition", known_from=EXPORTER),
    gauge(
        "kafka_topic_partition_in_sync_replica",
        "Replicas in sync.",
        "topic",
        "partition",
        known_from=EXPORTER,
    ),
    gauge(
        "kafka_topic_partition_under_replicated_partition",
        "1 if a replica is not in sync.",
        "topic",
        "partition",
        known_from=EXPORTER,
    ),
    gauge(
        "kafka_log_log_size",
        "Bytes of a partition's log on this broker, led here or not.",
        "topic",
        "partition",
        known_from=JMX,
    ),
    gauge("forebay_topic_log_bytes", "Bytes of a topic's logs on this broker.", "topic"),
    gauge("forebay_topic_delayed_pending", "Messages that wait for their time.", "topic"),
    gauge("forebay_topic_remote_bytes", "Bytes of a topic's messages in the object store.", "topic"),
    gauge(
        "forebay_topic_remote_lag_bytes",
        "Bytes of a topic's closed segments that are not in the object store yet.",
        "topic",
    ),
)

GROUPS = (
    gauge("forebay_groups", "Groups that this broker coordinates.", "type", "state"),
    gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup", known_from=EXPORTER),
    gauge(
        "kafka_consumergroup_current_offset",
        "The committed offset.",
        "consumergroup",
        "topic",
        "partition",
        known_from=EXPORTER,
    ),
    gauge(
        "kafka_consumergroup_lag",
        "Messages from the committed offset to the high watermark; none while the leader does not answer.",
        "consumergroup",
        "topic",
        "partition",
        known_from=EXPORTER,
    ),
    gauge(
        "kafka_consumergroup_current_offset_sum",
        "The sum of a topic's committed offsets.",
        "consumergroup",
        "topic",
        known_from=EXPORTER,
    ),
    gauge(
        "kafka_consumergroup_lag_sum",
        "The lag over a topic's partitions.",
        "consumergroup",
        "topic",
        known_from=EXPORTER,
    ),
    gauge(
        "forebay_consumergroup_lag_seconds",
        "The age of the oldest message that a group has not committed; 0 without lag, none if it is unknown.",
        "consumergroup",
        "topic",
    ),
)

QUEUES = (
    gauge(
        "forebay_share_records",
        "Messages of a share group by state: available (also those never sent), acquired (locked), backoff ("
        "to be delivered again later), dead_letter (not yet in the dead-letter topic).",
        "group",
        "topic",
        "state",
    ),
    gauge("forebay_share_lag", "Messages that a share group has not finished.", "group", "topic"),
    gauge("forebay_dead_letters_waiting", "Messages that are not in their dead-letter topic yet."),
    gauge("forebay_dead_letters_blocked", "Partitions of share groups whose dead letters cannot be moved."),
    counter("forebay_dead_letters_total", "Messages that were moved to a dead-letter topic."),
    gauge("forebay_delayed_pending", "Messages that wait for their time in partitions led here."),
    gauge(
        "forebay_delayed_overdue_seconds", "How long the first message that waits has been due; 0 if none is."
    ),
    counter("forebay_delayed_fired_total", "Delayed messages that were delivered."),
    counter("forebay_delayed_late_ms_total", "Milliseconds by which they were late, added up."),
    counter("forebay_spans_total", "Spans that were sent to the collector of forebay.tracing.endpoint."),
    counter(
        "forebay_spans_left_out_total",
        "Spans that were not sent: too many, or the collector did not answer. Of batches that were not looked"
        " at, each counts as one.",
    ),
    gauge("forebay_views", "Views of the cluster."),
    counter("forebay_view_records_examined_total", "Messages that views have looked at."),
    counter("forebay_view_records_delivered_total", "Messages that views have shown."),
    counter("forebay_view_records_invalid_total", "Messages that a view's query could not be applied to."),
    counter("forebay_view_cached_bytes_total", "Bytes of views that were served from the cache."),
    counter("forebay_view_records_copied_total", "Messages that were copied to materialized views."),
    counter(
        "forebay_view_offsets_missed_total", "Offsets that were gone before a materialized view had them."
    ),
    gauge(
        "forebay_view_fills_stopped", "Partitions of materialized views that are not filled now.", "reason"
    ),
    counter("forebay_folded_batches_total", "Batches for closed partitions that others took."),
    counter("forebay_folded_copies_total", "Messages of closed partitions that were copied to others."),
)

STORAGE = (
    gauge("forebay_disk_total_bytes", "The size of the file system of the data directory."),
    gauge("forebay_disk_free_bytes", "Free bytes of it."),
    gauge("forebay_log_bytes", "Bytes of all logs on this broker."),
    counter("kafka_log_logflushstats_logflush_total", "Flushes of logs to the disk.", known_from=JMX),
    counter("forebay_segments_deleted_total", "Segments that retention has deleted."),
    counter("forebay_logs_compacted_total", "Compactions of logs."),
    counter(
        "forebay_compactions_stopped_total", "Logs that are not compacted until the broker starts again."
    ),
    counter("forebay_compaction_freed_bytes_total", "Bytes that compaction has freed."),
    counter("forebay_unreadable_batches_total", "Batches that were found damaged or malformed."),
    gauge("forebay_remote_bytes", "Bytes in the object store, of partitions led here."),
    gauge("forebay_remote_lag_bytes", "Bytes of closed segments that are not in the object store yet."),
    gauge("forebay_remote_lag_segments", "Closed segments that are not in the object store yet."),
    gauge("forebay_remote_partitions_failing", "Partitions whose last work on the object store has failed."),
    counter("forebay_remote_failures_total", "Failed requests to the object store; they are tried again."),
    counter("forebay_remote_segments_copied_total", "Segments that were copied to the object store."),
    counter("forebay_remote_copied_bytes_total", "Bytes of them."),
    counter(
        "forebay_remote_retentions_total", "Times that retention has deleted messages of tiered partitions."
    ),
    counter("forebay_remote_objects_deleted_total", "Objects that were deleted."),
    counter("forebay_remote_chunks_read_total", "Chunks of segments that were read from the object store."),
    counter("forebay_remote_read_bytes_total", "Bytes of them."),
    counter("forebay_remote_cache_hits_total", "Reads of old messages that found their chunk on the disk."),
    gauge("forebay_stray_logs", "Logs that were put aside because the cluster does not know them."),
)
