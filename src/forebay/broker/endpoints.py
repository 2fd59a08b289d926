"""Every API this broker serves; what is not in this table is not advertised and not answered."""

from __future__ import annotations

from forebay.broker.dispatch import Endpoint
from forebay.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    write_txn_markers,
)

ENDPOINTS: dict[int, Endpoint] = {
    endpoint.api_key: endpoint
    for endpoint in (
        produce.ENDPOINT,
        fetch.ENDPOINT,
        list_offsets.ENDPOINT,
        metadata.ENDPOINT,
        find_coordinator.ENDPOINT,
        api_versions.ENDPOINT,
        delete_records.ENDPOINT,
        init_producer_id.ENDPOINT,
        offset_for_leader_epoch.ENDPOINT,
        create_topics.ENDPOINT,
        delete_topics.ENDPOINT,
        create_partitions.ENDPOINT,
        describe_configs.ENDPOINT,
        alter_configs.ENDPOINT,
        incremental_alter_configs.ENDPOINT,
        describe_cluster.ENDPOINT,
        describe_topic_partitions.ENDPOINT,
        describe_log_dirs.ENDPOINT,
        describe_producers.ENDPOINT,
        write_txn_markers.ENDPOINT,
    )
}
