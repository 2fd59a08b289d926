"""Every metric of the page, with its help text. `scripts/monitoring_docs.py` writes the docs from it.

Names that the dashboards for Kafka know are used where the meaning is the same: those of the JMX exporter
(with the rules of its `kafka-2_0_0.yml`) and those of kafka_exporter. All others begin with `forebay_`.
"""

from __future__ import annotations

from forebay.broker.prometheus.families import Family

_JMX, _EXPORTER, _CLIENTS = "JMX exporter", "kafka_exporter", "Prometheus clients"


def _counter(name: str, text: str, *labels: str, known_from: str = "") -> Family:
    return Family(name, "counter", text, labels, known_from)


def _gauge(name: str, text: str, *labels: str, known_from: str = "") -> Family:
    return Family(name, "gauge", text, labels, known_from)


_TRAFFIC = (
    _counter(
        "kafka_server_brokertopicmetrics_messagesin_total",
        "Messages that producers have written to partitions led here; all of them, and by topic.",
        "topic",
        known_from=_JMX,
    ),
    _counter(
        "kafka_server_brokertopicmetrics_bytesin_total",
        "Bytes of them, as they are stored.",
        "topic",
        known_from=_JMX,
    ),
    _counter(
        "kafka_server_brokertopicmetrics_bytesout_total",
        "Bytes of messages that were sent to consumers.",
        "topic",
        known_from=_JMX,
    ),
    _counter(
        "kafka_server_brokertopicmetrics_totalproducerequests_total", "Produce requests.", known_from=_JMX
    ),
    _counter(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "Partitions of Produce requests that were answered with an error.",
        known_from=_JMX,
    ),
    _counter("kafka_server_brokertopicmetrics_totalfetchrequests_total", "Fetch requests.", known_from=_JMX),
    _counter(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        "Partitions of Fetch requests that were answered with an error.",
        known_from=_JMX,
    ),
    _counter(
        "forebay_duplicate_batches_total", "Batches that a producer sent again, which were stored once."
    ),
    _counter("forebay_cold_reads_total", "Reads of messages that came from the disk, not from memory."),
)

_REQUESTS = (
    Family(
        "kafka_network_requestmetrics_totaltimems",
        "histogram",
        "Milliseconds from when a request is read to when its answer is ready, waits included. Of many "
        "Produce and Fetch requests one in 64 is measured, and counts for all since the last.",
        ("request",),
        _JMX,
    ),
    _counter("kafka_network_requestmetrics_requests_total", "Requests by API.", "request", known_from=_JMX),
    _gauge("forebay_connections", "Open connections of clients and brokers."),
    _counter("forebay_connections_accepted_total", "Connections that were accepted."),
    _counter("forebay_connections_refused_total", "Connections that were refused: a limit was reached."),
    _counter(
        "forebay_connections_idle_closed_total", "Connections that were closed after connections.max.idle.ms."
    ),
    _gauge("forebay_request_memory_bytes", "Memory of requests that are being received or handled."),
    _gauge(
        "forebay_connections_waiting_for_memory",
        "Connections whose requests wait because queued.max.request.bytes is used up.",
    ),
    _counter(
        "forebay_requests_malformed_total", "Requests that could not be read; their connections were closed."
    ),
    _counter("forebay_requests_refused_total", "Requests, or parts of them, that no ACL allows."),
    _counter("forebay_requests_unserved_total", "Requests of an API or a version that is not served."),
    _counter(
        "forebay_requests_unfinished_total",
        "Connections closed because requests did not come whole in time, or kept memory that others needed.",
    ),
    _counter(
        "forebay_requests_stalling_total",
        "Requests that blocked the event loop for forebay.stall.alarm.ms or longer.",
    ),
    _counter("forebay_throttled_total", "Answers that told a client to wait, by quota.", "quota"),
    _counter("forebay_throttle_ms_total", "Milliseconds that clients were told to wait, by quota.", "quota"),
    _gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.", known_from=_JMX),
)

_SECURITY = (
    _counter("forebay_tls_handshakes_total", "TLS handshakes that succeeded."),
    _counter("forebay_tls_handshakes_failed_total", "TLS handshakes that failed."),
    _gauge(
        "forebay_certificate_expiry_timestamp_seconds",
        "When the first certificate of a listener's keystore or truststore expires, or of the files for etcd "
        '(listener="etcd"), in seconds since 1970.',
        "listener",
        "store",
    ),
    _counter("forebay_logins_total", "Logins that succeeded."),
    _counter("forebay_logins_failed_total", "Logins with a wrong user or password, or an invalid token."),
    _counter(
        "forebay_logins_refused_total", "Logins that were refused unchecked: too many fail from the address."
    ),
    _counter("forebay_logins_timed_out_total", "Connections closed because the login did not come in time."),
    _counter("forebay_logins_evicted_total", "Connections without a login that were closed to make room."),
    _counter("forebay_sessions_expired_total", "Connections closed because their login was not renewed."),
    _gauge("forebay_delegation_tokens", "Delegation tokens of the cluster."),
)

_TOPICS = (
    _gauge(
        "kafka_topic_partitions",
        "Partitions of a topic; from the leader of its first one.",
        "topic",
        known_from=_EXPORTER,
    ),
    _gauge(
        "kafka_topic_partition_current_offset",
        "The high watermark; from the leader of the partition, like all that follow.",
        "topic",
        "partition",
        known_from=_EXPORTER,
    ),
    _gauge(
        "kafka_topic_partition_oldest_offset", "The first offset.", "topic", "partition", known_from=_EXPORTER
    ),
    _gauge(
        "kafka_topic_partition_leader",
        "The node id of the leader.",
        "topic",
        "partition",
        known_from=_EXPORTER,
    ),
    _gauge(
        "kafka_topic_partition_leader_is_preferred",
        "1 if the first replica leads.",
        "topic",
        "partition",
        known_from=_EXPORTER,
    ),
    _gauge("kafka_topic_partition_replicas", "Replicas.", "topic", "partition", known_from=_EXPORTER),
    _gauge(
        "kafka_topic_partition_in_sync_replica",
        "Replicas in sync.",
        "topic",
        "partition",
        known_from=_EXPORTER,
    ),
    _gauge(
        "kafka_topic_partition_under_replicated_partition",
        "1 if a replica is not in sync.",
        "topic",
        "partition",
        known_from=_EXPORTER,
    ),
    _gauge(
        "kafka_log_log_size",
        "Bytes of a partition's log on this broker, led here or not.",
        "topic",
        "partition",
        known_from=_JMX,
    ),
    _gauge("forebay_topic_log_bytes", "Bytes of a topic's logs on this broker.", "topic"),
    _gauge("forebay_topic_delayed_pending", "Messages that wait for their time.", "topic"),
    _gauge("forebay_topic_remote_bytes", "Bytes of a topic's messages in the object store.", "topic"),
    _gauge(
        "forebay_topic_remote_lag_bytes",
        "Bytes of a topic's closed segments that are not in the object store yet.",
        "topic",
    ),
)

_GROUPS = (
    _gauge("forebay_groups", "Groups that this broker coordinates.", "type", "state"),
    _gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup", known_from=_EXPORTER),
    _gauge(
        "kafka_consumergroup_current_offset",
        "The committed offset.",
        "consumergroup",
        "topic",
        "partition",
        known_from=_EXPORTER,
    ),
    _gauge(
        "kafka_consumergroup_lag",
        "Messages from the committed offset to the high watermark; none while the leader does not answer.",
        "consumergroup",
        "topic",
        "partition",
        known_from=_EXPORTER,
    ),
    _gauge(
        "kafka_consumergroup_current_offset_sum",
        "The sum of a topic's committed offsets.",
        "consumergroup",
        "topic",
        known_from=_EXPORTER,
    ),
    _gauge(
        "kafka_consumergroup_lag_sum",
        "The lag over a topic's partitions.",
        "consumergroup",
        "topic",
        known_from=_EXPORTER,
    ),
    _gauge(
        "forebay_consumergroup_lag_seconds",
        "The age of the oldest message that a group has not committed; 0 without lag, none if it is unknown.",
        "consumergroup",
        "topic",
    ),
)

_QUEUES = (
    _gauge(
        "forebay_share_records",
        "Messages of a share group by state: available (also those never sent), acquired (locked), backoff ("
        "to be delivered again later), dead_letter (not yet in the dead-letter topic).",
        "group",
        "topic",
        "state",
    ),
    _gauge("forebay_share_lag", "Messages that a share group has not finished.", "group", "topic"),
    _gauge("forebay_dead_letters_waiting", "Messages that are not in their dead-letter topic yet."),
    _gauge("forebay_dead_letters_blocked", "Partitions of share groups whose dead letters cannot be moved."),
    _counter("forebay_dead_letters_total", "Messages that were moved to a dead-letter topic."),
    _gauge("forebay_delayed_pending", "Messages that wait for their time in partitions led here."),
    _gauge(
        "forebay_delayed_overdue_seconds", "How long the first message that waits has been due; 0 if none is."
    ),
    _counter("forebay_delayed_fired_total", "Delayed messages that were delivered."),
    _counter("forebay_delayed_late_ms_total", "Milliseconds by which they were late, added up."),
    _counter("forebay_spans_total", "Spans that were sent to the collector of forebay.tracing.endpoint."),
    _counter(
        "forebay_spans_left_out_total",
        "Spans that were not sent: too many, or the collector did not answer. Of batches that were not looked"
        " at, each counts as one.",
    ),
    _gauge("forebay_views", "Views of the cluster."),
    _counter("forebay_view_records_examined_total", "Messages that views have looked at."),
    _counter("forebay_view_records_delivered_total", "Messages that views have shown."),
    _counter("forebay_view_records_invalid_total", "Messages that a view's query could not be applied to."),
    _counter("forebay_view_cached_bytes_total", "Bytes of views that were served from the cache."),
    _counter("forebay_view_records_copied_total", "Messages that were copied to materialized views."),
    _counter(
        "forebay_view_offsets_missed_total", "Offsets that were gone before a materialized view had them."
    ),
    _gauge(
        "forebay_view_fills_stopped", "Partitions of materialized views that are not filled now.", "reason"
    ),
    _counter("forebay_folded_batches_total", "Batches for closed partitions that others took."),
    _counter("forebay_folded_copies_total", "Messages of closed partitions that were copied to others."),
)

_STORAGE = (
    _gauge("forebay_disk_total_bytes", "The size of the file system of the data directory."),
    _gauge("forebay_disk_free_bytes", "Free bytes of it."),
    _gauge("forebay_log_bytes", "Bytes of all logs on this broker."),
    _counter("kafka_log_logflushstats_logflush_total", "Flushes of logs to the disk.", known_from=_JMX),
    _counter("forebay_segments_deleted_total", "Segments that retention has deleted."),
    _counter("forebay_logs_compacted_total", "Compactions of logs."),
    _counter(
        "forebay_compactions_stopped_total", "Logs that are not compacted until the broker starts again."
    ),
    _counter("forebay_compaction_freed_bytes_total", "Bytes that compaction has freed."),
    _counter("forebay_unreadable_batches_total", "Batches that were found damaged or malformed."),
    _gauge("forebay_remote_bytes", "Bytes in the object store, of partitions led here."),
    _gauge("forebay_remote_lag_bytes", "Bytes of closed segments that are not in the object store yet."),
    _gauge("forebay_remote_lag_segments", "Closed segments that are not in the object store yet."),
    _gauge("forebay_remote_partitions_failing", "Partitions whose last work on the object store has failed."),
    _counter("forebay_remote_failures_total", "Failed requests to the object store; they are tried again."),
    _counter("forebay_remote_segments_copied_total", "Segments that were copied to the object store."),
    _counter("forebay_remote_copied_bytes_total", "Bytes of them."),
    _counter(
        "forebay_remote_retentions_total", "Times that retention has deleted messages of tiered partitions."
    ),
    _counter("forebay_remote_objects_deleted_total", "Objects that were deleted."),
    _counter("forebay_remote_chunks_read_total", "Chunks of segments that were read from the object store."),
    _counter("forebay_remote_read_bytes_total", "Bytes of them."),
    _counter("forebay_remote_cache_hits_total", "Reads of old messages that found their chunk on the disk."),
    _gauge("forebay_stray_logs", "Logs that were put aside because the cluster does not know them."),
)

_REPLICATION = (
    _gauge("kafka_server_replicamanager_partitioncount", "Partitions with a replica here.", known_from=_JMX),
    _gauge("kafka_server_replicamanager_leadercount", "Partitions led here.", known_from=_JMX),
    _gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here with replicas that are not in sync.",
        known_from=_JMX,
    ),
    _gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
        known_from=_JMX,
    ),
    _gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas here whose logs cannot be written.",
        known_from=_JMX,
    ),
    _counter(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "Bytes fetched from leaders.",
        known_from=_JMX,
    ),
    _counter(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        "Bytes sent to followers.",
        known_from=_JMX,
    ),
    _counter("forebay_replication_batches_in_total", "Batches fetched from leaders."),
    _counter(
        "kafka_server_replicamanager_isrshrinks_total", "Replicas that have left the ISR.", known_from=_JMX
    ),
    _counter(
        "kafka_server_replicamanager_isrexpands_total", "Replicas that have joined the ISR.", known_from=_JMX
    ),
    _counter(
        "kafka_server_replicamanager_failedisrupdates_total",
        "Changes of the ISR that the store has refused.",
        known_from=_JMX,
    ),
)

_CLUSTER = (
    _gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 on the controller.", known_from=_JMX),
    _gauge(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "Partitions of the cluster without a leader; like the next two only on the controller, else 0.",
        known_from=_JMX,
    ),
    _gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.", known_from=_JMX),
    _gauge(
        "kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.", known_from=_JMX
    ),
    _gauge("kafka_brokers", "Brokers of the cluster.", known_from=_EXPORTER),
    _gauge("kafka_broker_info", "1 for each broker of the cluster.", "id", "address", known_from=_EXPORTER),
    _gauge("forebay_brokers", "Brokers of the cluster."),
    _gauge("forebay_partitions_unsettled", "Partitions without leader because the store was restored."),
    _gauge("forebay_lease_valid", "1 while the broker holds its lease and knows the latest elections."),
    _counter("forebay_leases_lost_total", "Leases that were lost."),
    _counter(
        "forebay_acks_refused_without_lease_total", "Acknowledgements refused because the lease was lost."
    ),
    _gauge("forebay_store_refused", "1 while another store answers than the broker's own.", "reason"),
    _gauge("forebay_metadata_behind", "1 while the store does not answer."),
    _gauge("forebay_store_behind", "1 if the store knows less than this broker's disk."),
    _gauge("forebay_store_unreadable_keys", "Values in the store that cannot be read."),
    _counter(
        "forebay_epochs_ahead_of_store_total", "Logs found with later leader epochs than the store has."
    ),
    _counter(
        "forebay_failovers_total", "Brokers that this one counted as dead because they refused connections."
    ),
    _counter(
        "forebay_failover_detect_ms_total", "Milliseconds from a broken connection to the second refusal."
    ),
    _counter("forebay_failover_fence_ms_total", "Milliseconds until the registration was gone."),
    _counter("forebay_failover_elect_ms_total", "Milliseconds until the first new leader was elected."),
    _counter("forebay_failover_announce_ms_total", "Milliseconds until the last one was."),
)

_PROCESS = (
    _gauge(
        "kafka_server_kafkaserver_brokerstate",
        "1 while it starts, 3 while it serves, 6 while it hands over and stops.",
        known_from=_JMX,
    ),
    _gauge("forebay_ready", "1 if /readyz answers 200."),
    _gauge("forebay_build_info", "1, with the version.", "version"),
    _counter("process_cpu_seconds_total", "User and system CPU time.", known_from=_CLIENTS),
    _gauge("process_resident_memory_bytes", "Resident memory.", known_from=_CLIENTS),
    _gauge("process_open_fds", "Open file descriptors.", known_from=_CLIENTS),
    _gauge("process_max_fds", "The limit of open file descriptors.", known_from=_CLIENTS),
    _gauge(
        "process_start_time_seconds", "When the broker began, in seconds since 1970.", known_from=_CLIENTS
    ),
    _counter(
        "forebay_loop_stalls_total", "Times that the event loop was blocked for a quarter of the lease."
    ),
    _gauge("forebay_loop_stall_longest_ms", "The longest time that the event loop was blocked."),
    _counter("forebay_background_failures_total", "Background tasks that failed and were restarted."),
    _counter("forebay_coordinator_failures_total", "Coordinators that failed and were loaded again."),
    _gauge(
        "forebay_metrics_left_out",
        "Series of topics, partitions and groups that forebay.metrics.series.max leaves no room for.",
    ),
)

SECTIONS = {
    "Traffic": _TRAFFIC,
    "Requests and connections": _REQUESTS,
    "Topics and partitions": _TOPICS,
    "Groups": _GROUPS,
    "Queues, delays and views": _QUEUES,
    "Storage": _STORAGE,
    "Replication": _REPLICATION,
    "Cluster": _CLUSTER,
    "Logins and certificates": _SECURITY,
    "The process": _PROCESS,
}
CATALOG = {family.name: family for families in SECTIONS.values() for family in families}
