"""Counters of one broker, kept as plain integers where the work happens, and read by the exporter.

Names follow Kafka's where Kafka has the same thing (`kafka_`), and ours otherwise (`forebay_`).
"""

from __future__ import annotations

from collections.abc import Iterator

_EXPORTED = {
    "messages_in": "kafka_server_brokertopicmetrics_messagesin_total",
    "bytes_in": "kafka_server_brokertopicmetrics_bytesin_total",
    "bytes_out": "kafka_server_brokertopicmetrics_bytesout_total",
    "produce_requests": "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "produce_failures": "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "fetch_requests": "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "fetch_failures": "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "connections_accepted": "forebay_connections_accepted_total",
    "connections_refused": "forebay_connections_refused_total",
    "connections_idle_closed": "forebay_connections_idle_closed_total",
    "requests_malformed": "forebay_requests_malformed_total",
    "requests_unserved": "forebay_requests_unserved_total",
    "cold_reads": "forebay_cold_reads_total",
    "log_flushes": "kafka_log_logflushstats_logflush_total",
    "duplicates_dropped": "forebay_duplicate_batches_total",
    "segments_deleted": "forebay_segments_deleted_total",
    "logs_compacted": "forebay_logs_compacted_total",
    "compaction_bytes_freed": "forebay_compaction_freed_bytes_total",
    "unreadable_batches": "forebay_unreadable_batches_total",
    "replication_bytes_in": "kafka_server_brokertopicmetrics_replicationbytesin_total",
    "replication_batches_in": "forebay_replication_batches_in_total",
    "isr_shrinks": "kafka_server_replicamanager_isrshrinks_total",
    "isr_expands": "kafka_server_replicamanager_isrexpands_total",
    "isr_updates_failed": "kafka_server_replicamanager_failedisrupdates_total",
    "background_failures": "forebay_background_failures_total",
    "coordinator_failures": "forebay_coordinator_failures_total",
    "leases_lost": "forebay_leases_lost_total",
    "acks_refused": "forebay_acks_refused_without_lease_total",
    "loop_stalls": "forebay_loop_stalls_total",
}


class Metrics:
    __slots__ = tuple(_EXPORTED)

    messages_in: int
    bytes_in: int
    bytes_out: int
    produce_requests: int
    produce_failures: int
    fetch_requests: int
    fetch_failures: int
    connections_accepted: int
    connections_refused: int
    connections_idle_closed: int
    requests_malformed: int
    requests_unserved: int
    cold_reads: int
    log_flushes: int
    duplicates_dropped: int
    segments_deleted: int
    logs_compacted: int
    compaction_bytes_freed: int
    unreadable_batches: int
    replication_bytes_in: int
    replication_batches_in: int
    isr_shrinks: int
    isr_expands: int
    isr_updates_failed: int
    background_failures: int
    coordinator_failures: int
    leases_lost: int
    acks_refused: int
    loop_stalls: int

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    def samples(self) -> Iterator[tuple[str, int]]:
        """Exported name and value of every counter."""
        for attribute, name in _EXPORTED.items():
            yield name, getattr(self, attribute)
