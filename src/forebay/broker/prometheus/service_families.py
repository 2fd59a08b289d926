"""The metrics of the service itself: traffic, requests, logins, replication, the cluster and the process."""

from __future__ import annotations

from forebay.broker.prometheus.families import CLIENTS, EXPORTER, JMX, Family, counter, gauge

TRAFFIC = (
    counter(
        "kafka_server_brokertopicmetrics_messagesin_total",
        "Messages that producers have written to partitions led here; all of them, and by topic.",
        "topic",
        known_from=JMX,
    ),
    counter(
        "kafka_server_brokertopicmetrics_bytesin_total",
        "Bytes of them, as they are stored.",
        "topic",
        known_from=JMX,
    ),
    counter(
        "kafka_server_brokertopicmetrics_bytesout_total",
        "Bytes of messages that were sent to consumers.",
        "topic",
        known_from=JMX,
    ),
    counter(
        "kafka_server_brokertopicmetrics_totalproducerequests_total", "Produce requests.", known_from=JMX
    ),
    counter(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "Partitions of Produce requests that were answered with an error.",
        known_from=JMX,
    ),
    counter("kafka_server_brokertopicmetrics_totalfetchrequests_total", "Fetch requests.", known_from=JMX),
    counter(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        "Partitions of Fetch requests that were answered with an error.",
        known_from=JMX,
    ),
    counter("forebay_duplicate_batches_total", "Batches that a producer sent again, which were stored once."),
    counter("forebay_cold_reads_total", "Reads of messages that came from the disk, not from memory."),
)

REQUESTS = (
    Family(
        "kafka_network_requestmetrics_totaltimems",
        "histogram",
        "Milliseconds from when a request is read to when its answer is ready, waits included. Of many "
        "Produce and Fetch requests one in 64 is measured, and counts for all since the last.",
        ("request",),
        JMX,
    ),
    counter("kafka_network_requestmetrics_requests_total", "Requests by API.", "request", known_from=JMX),
    gauge("forebay_connections", "Open connections of clients and brokers."),
    counter("forebay_connections_accepted_total", "Connections that were accepted."),
    counter("forebay_connections_refused_total", "Connections that were refused: a limit was reached."),
    counter(
        "forebay_connections_idle_closed_total", "Connections that were closed after connections.max.idle.ms."
    ),
    gauge("forebay_request_memory_bytes", "Memory of requests that are being received or handled."),
    gauge(
        "forebay_connections_waiting_for_memory",
        "Connections whose requests wait because queued.max.request.bytes is used up.",
    ),
    counter(
        "forebay_requests_malformed_total", "Requests that could not be read; their connections were closed."
    ),
    counter("forebay_requests_refused_total", "Requests, or parts of them, that no ACL allows."),
    counter("forebay_requests_unserved_total", "Requests of an API or a version that is not served."),
    counter(
        "forebay_requests_unfinished_total",
        "Connections closed because requests did not come whole in time, or kept memory that others needed.",
    ),
    counter(
        "forebay_requests_stalling_total",
        "Requests that blocked the event loop for forebay.stall.alarm.ms or longer.",
    ),
    counter("forebay_throttled_total", "Answers that told a client to wait, by quota.", "quota"),
    counter("forebay_throttle_ms_total", "Milliseconds that clients were told to wait, by quota.", "quota"),
    gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.", known_from=JMX),
)

SECURITY = (
    counter("forebay_tls_handshakes_total", "TLS handshakes that succeeded."),
    counter("forebay_tls_handshakes_failed_total", "TLS handshakes that failed."),
    gauge(
        "forebay_certificate_expiry_timestamp_seconds",
        "When the first certificate of a listener's keystore or truststore expires, or of the files for etcd "
        '(listener="etcd"), in seconds since 1970.',
        "listener",
        "store",
    ),
    counter("forebay_logins_total", "Logins that succeeded."),
    counter("forebay_logins_failed_total", "Logins with a wrong user or password, or an invalid token."),
    counter(
        "forebay_logins_refused_total", "Logins that were refused unchecked: too many fail from the address."
    ),
    counter("forebay_logins_timed_out_total", "Connections closed because the login did not come in time."),
    counter("forebay_logins_evicted_total", "Connections without a login that were closed to make room."),
    counter("forebay_sessions_expired_total", "Connections closed because their login was not renewed."),
    gauge("forebay_delegation_tokens", "Delegation tokens of the cluster."),
)

REPLICATION = (
    gauge("kafka_server_replicamanager_partitioncount", "Partitions with a replica here.", known_from=JMX),
    gauge("kafka_server_replicamanager_leadercount", "Partitions led here.", known_from=JMX),
    gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here with replicas that are not in sync.",
        known_from=JMX,
    ),
    gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
        known_from=JMX,
    ),
    gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas here whose logs cannot be written.",
        known_from=JMX,
    ),
    counter(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "Bytes fetched from leaders.",
        known_from=JMX,
    ),
    counter(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        "Bytes sent to followers.",
        known_from=JMX,
    ),
    counter("forebay_replication_batches_in_total", "Batches fetched from leaders."),
    counter(
        "kafka_server_replicamanager_isrshrinks_total", "Replicas that have left the ISR.", known_from=JMX
    ),
    counter(
        "kafka_server_replicamanager_isrexpands_total", "Replicas that have joined the ISR.", known_from=JMX
    ),
    counter(
        "kafka_server_replicamanager_failedisrupdates_total",
        "Changes of the ISR that the store has refused.",
        known_from=JMX,
    ),
)

CLUSTER = (
    gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 on the controller.", known_from=JMX),
    gauge(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "Partitions of the cluster without a leader; like the next two only on the controller, else 0.",
        known_from=JMX,
    ),
    gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.", known_from=JMX),
    gauge(
        "kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.", known_from=JMX
    ),
    gauge("kafka_brokers", "Brokers of the cluster.", known_from=EXPORTER),
    gauge("kafka_broker_info", "1 for each broker of the cluster.", "id", "address", known_from=EXPORTER),
    gauge("forebay_brokers", "Brokers of the cluster."),
    gauge("forebay_partitions_unsettled", "Partitions without leader because the store was restored."),
    gauge("forebay_lease_valid", "1 while the broker holds its lease and knows the latest elections."),
    counter("forebay_leases_lost_total", "Leases that were lost."),
    counter(
        "forebay_acks_refused_without_lease_total", "Acknowledgements refused because the lease was lost."
    ),
    gauge("forebay_store_refused", "1 while another store answers than the broker's own.", "reason"),
    gauge("forebay_metadata_behind", "1 while the store does not answer."),
    gauge("forebay_store_behind", "1 if the store knows less than this broker's disk."),
    gauge("forebay_store_unreadable_keys", "Values in the store that cannot be read."),
    counter("forebay_epochs_ahead_of_store_total", "Logs found with later leader epochs than the store has."),
    counter(
        "forebay_failovers_total", "Brokers that this one counted as dead because they refused connections."
    ),
    counter(
        "forebay_failover_detect_ms_total", "Milliseconds from a broken connection to the second refusal."
    ),
    counter("forebay_failover_fence_ms_total", "Milliseconds until the registration was gone."),
    counter("forebay_failover_elect_ms_total", "Milliseconds until the first new leader was elected."),
    counter("forebay_failover_announce_ms_total", "Milliseconds until the last one was."),
)

PROCESS = (
    gauge(
        "kafka_server_kafkaserver_brokerstate",
        "1 while it starts, 3 while it serves, 6 while it hands over and stops.",
        known_from=JMX,
    ),
    gauge("forebay_ready", "1 if /readyz answers 200."),
    gauge("forebay_build_info", "1, with the version.", "version"),
    counter("process_cpu_seconds_total", "User and system CPU time.", known_from=CLIENTS),
    gauge("process_resident_memory_bytes", "Resident memory.", known_from=CLIENTS),
    gauge("process_open_fds", "Open file descriptors.", known_from=CLIENTS),
    gauge("process_max_fds", "The limit of open file descriptors.", known_from=CLIENTS),
    gauge("process_start_time_seconds", "When the broker began, in seconds since 1970.", known_from=CLIENTS),
    counter("forebay_loop_stalls_total", "Times that the event loop was blocked for a quarter of the lease."),
    gauge("forebay_loop_stall_longest_ms", "The longest time that the event loop was blocked."),
    counter("forebay_background_failures_total", "Background tasks that failed and were restarted."),
    counter("forebay_coordinator_failures_total", "Coordinators that failed and were loaded again."),
    gauge(
        "forebay_metrics_left_out",
        "Series of topics, partitions and groups that forebay.metrics.series.max leaves no room for.",
    ),
)
