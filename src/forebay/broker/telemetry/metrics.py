"""Counters of one broker, kept as plain integers where the work happens, and read by the exporter.

Names follow Kafka's where Kafka has the same thing (`kafka_`), and ours otherwise (`forebay_`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import field, fields
from weakref import WeakValueDictionary

from forebay.broker.telemetry.request_times import RequestTimes
from forebay.lazy import dataclass


def _counter(exported_name: str) -> int:
    counter: int = field(default=0, metadata={"exported": exported_name})
    return counter


class TopicTraffic:
    """Counts what clients write to one topic and read of it. Its partitions on this broker share one."""

    __slots__ = ("__weakref__", "bytes_in", "bytes_out", "messages_in")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0


class TrafficByTopic:
    """Of the topics that this broker has partitions of. Partitions are opened in threads."""

    __slots__ = ("_by_topic", "_lock")

    def __init__(self) -> None:
        self._by_topic: WeakValueDictionary[bytes, TopicTraffic] = WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, topic_id: bytes) -> TopicTraffic:
        with self._lock:
            return self._by_topic.setdefault(topic_id, TopicTraffic())


@dataclass(slots=True, eq=False)
class Metrics:
    messages_in: int = _counter("kafka_server_brokertopicmetrics_messagesin_total")
    bytes_in: int = _counter("kafka_server_brokertopicmetrics_bytesin_total")
    bytes_out: int = _counter("kafka_server_brokertopicmetrics_bytesout_total")
    produce_failures: int = _counter("kafka_server_brokertopicmetrics_failedproducerequests_total")
    fetch_failures: int = _counter("kafka_server_brokertopicmetrics_failedfetchrequests_total")
    connections_accepted: int = _counter("forebay_connections_accepted_total")
    connections_refused: int = _counter("forebay_connections_refused_total")
    connections_idle_closed: int = _counter("forebay_connections_idle_closed_total")
    requests_malformed: int = _counter("forebay_requests_malformed_total")
    requests_refused: int = _counter("forebay_requests_refused_total")
    requests_unserved: int = _counter("forebay_requests_unserved_total")
    requests_unfinished: int = _counter("forebay_requests_unfinished_total")
    requests_stalling: int = _counter("forebay_requests_stalling_total")
    tls_handshakes: int = _counter("forebay_tls_handshakes_total")
    tls_handshakes_failed: int = _counter("forebay_tls_handshakes_failed_total")
    logins: int = _counter("forebay_logins_total")
    logins_failed: int = _counter("forebay_logins_failed_total")
    logins_refused: int = _counter("forebay_logins_refused_total")
    logins_timed_out: int = _counter("forebay_logins_timed_out_total")
    logins_evicted: int = _counter("forebay_logins_evicted_total")
    throttled_produce: int = _counter('forebay_throttled_total{quota="producer_byte_rate"}')
    throttled_fetch: int = _counter('forebay_throttled_total{quota="consumer_byte_rate"}')
    throttled_request: int = _counter('forebay_throttled_total{quota="request_percentage"}')
    throttled_mutation: int = _counter('forebay_throttled_total{quota="controller_mutation_rate"}')
    throttled_connection: int = _counter('forebay_throttled_total{quota="connection_creation_rate"}')
    throttled_produce_ms: int = _counter('forebay_throttle_ms_total{quota="producer_byte_rate"}')
    throttled_fetch_ms: int = _counter('forebay_throttle_ms_total{quota="consumer_byte_rate"}')
    throttled_request_ms: int = _counter('forebay_throttle_ms_total{quota="request_percentage"}')
    throttled_mutation_ms: int = _counter('forebay_throttle_ms_total{quota="controller_mutation_rate"}')
    throttled_connection_ms: int = _counter('forebay_throttle_ms_total{quota="connection_creation_rate"}')
    sessions_expired: int = _counter("forebay_sessions_expired_total")
    cold_reads: int = _counter("forebay_cold_reads_total")
    log_flushes: int = _counter("kafka_log_logflushstats_logflush_total")
    duplicates_dropped: int = _counter("forebay_duplicate_batches_total")
    folded_batches: int = _counter("forebay_folded_batches_total")
    folded_copies: int = _counter("forebay_folded_copies_total")
    segments_deleted: int = _counter("forebay_segments_deleted_total")
    logs_compacted: int = _counter("forebay_logs_compacted_total")
    compactions_stopped: int = _counter("forebay_compactions_stopped_total")
    compaction_bytes_freed: int = _counter("forebay_compaction_freed_bytes_total")
    unreadable_batches: int = _counter("forebay_unreadable_batches_total")
    replication_bytes_in: int = _counter("kafka_server_brokertopicmetrics_replicationbytesin_total")
    replication_bytes_out: int = _counter("kafka_server_brokertopicmetrics_replicationbytesout_total")
    replication_batches_in: int = _counter("forebay_replication_batches_in_total")
    isr_shrinks: int = _counter("kafka_server_replicamanager_isrshrinks_total")
    isr_expands: int = _counter("kafka_server_replicamanager_isrexpands_total")
    isr_updates_failed: int = _counter("kafka_server_replicamanager_failedisrupdates_total")
    view_records_examined: int = _counter("forebay_view_records_examined_total")
    view_records_delivered: int = _counter("forebay_view_records_delivered_total")
    view_records_invalid: int = _counter("forebay_view_records_invalid_total")
    view_cached_bytes: int = _counter("forebay_view_cached_bytes_total")
    view_records_copied: int = _counter("forebay_view_records_copied_total")
    view_offsets_missed: int = _counter("forebay_view_offsets_missed_total")
    dead_letters: int = _counter("forebay_dead_letters_total")
    delayed_fired: int = _counter("forebay_delayed_fired_total")
    delayed_late_ms: int = _counter("forebay_delayed_late_ms_total")
    remote_segments_copied: int = _counter("forebay_remote_segments_copied_total")
    remote_bytes_copied: int = _counter("forebay_remote_copied_bytes_total")
    remote_segments_expired: int = _counter("forebay_remote_retentions_total")
    remote_objects_deleted: int = _counter("forebay_remote_objects_deleted_total")
    remote_chunks_read: int = _counter("forebay_remote_chunks_read_total")
    remote_bytes_read: int = _counter("forebay_remote_read_bytes_total")
    remote_chunk_hits: int = _counter("forebay_remote_cache_hits_total")
    remote_failures: int = _counter("forebay_remote_failures_total")
    spans: int = _counter("forebay_spans_total")
    spans_left_out: int = _counter("forebay_spans_left_out_total")
    background_failures: int = _counter("forebay_background_failures_total")
    coordinator_failures: int = _counter("forebay_coordinator_failures_total")
    epochs_ahead: int = _counter("forebay_epochs_ahead_of_store_total")
    leases_lost: int = _counter("forebay_leases_lost_total")
    failovers: int = _counter("forebay_failovers_total")
    failover_detect_ms: int = _counter("forebay_failover_detect_ms_total")
    failover_fence_ms: int = _counter("forebay_failover_fence_ms_total")
    failover_elect_ms: int = _counter("forebay_failover_elect_ms_total")
    failover_announce_ms: int = _counter("forebay_failover_announce_ms_total")
    acks_refused: int = _counter("forebay_acks_refused_without_lease_total")
    loop_stalls: int = _counter("forebay_loop_stalls_total")
    topics: TrafficByTopic = field(default_factory=TrafficByTopic)
    requests: RequestTimes = field(default_factory=RequestTimes)

    def samples(self) -> Iterator[tuple[str, int]]:
        """Exported name and value of every counter."""
        for counter in fields(self):
            if "exported" in counter.metadata:
                yield counter.metadata["exported"], getattr(self, counter.name)
