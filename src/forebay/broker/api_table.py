"""Every API this broker serves; what is not in this table is not advertised and not answered."""

from __future__ import annotations

import asyncio

from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.addresses import Addresses
from forebay.broker.cluster.peers import Peers
from forebay.broker.cluster.topic_changes import TopicChanges
from forebay.broker.coordinators.groups import Groups
from forebay.broker.coordinators.markers import MarkerAppends
from forebay.broker.coordinators.producer_ids import ProducerIds
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.fetch.offsets_by_time import OffsetsByTime
from forebay.broker.fetch.service import FetchService
from forebay.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from forebay.broker.handlers import fetch as fetch_api
from forebay.broker.handlers import metadata as metadata_api
from forebay.broker.handlers import produce as produce_api
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.dispatch import Endpoint
from forebay.broker.partition.table import PartitionTable
from forebay.broker.produce.service import ProduceService
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.coordination.metadata import Metadata
from forebay.storage.disk import Disk


def api_table(
    *,
    node_id: int,
    settings: LiveConfig,
    metadata: Metadata,
    partitions: PartitionTable,
    topic_changes: TopicChanges,
    addresses: Addresses,
    peers: Peers,
    produce: ProduceService,
    fetch: FetchService,
    offsets_by_time: OffsetsByTime,
    groups: Groups,
    transactions: Transactions,
    producer_ids: ProducerIds,
    marker_appends: MarkerAppends,
    write_cycle: WriteCycle,
    disk: Disk,
    background: Background,
    time: BrokerTime,
    loop: asyncio.AbstractEventLoop,
) -> dict[int, Endpoint]:
    """The endpoints by their API keys, each with the parts that its handler needs."""
    table: dict[int, Endpoint] = {}
    endpoints = (
        add_offsets_to_txn.endpoint(groups, transactions, time),
        add_partitions_to_txn.endpoint(transactions, metadata, background, time),
        alter_configs.endpoint(topic_changes, settings),
        alter_partition_reassignments.endpoint(metadata, settings),
        alter_replica_log_dirs.endpoint(partitions, settings),
        api_versions.endpoint(table),
        consumer_group_describe.endpoint(groups),
        consumer_group_heartbeat.endpoint(groups),
        create_acls.endpoint(),
        create_partitions.endpoint(topic_changes),
        create_topics.endpoint(topic_changes, settings),
        delete_acls.endpoint(),
        delete_groups.endpoint(groups),
        delete_records.endpoint(partitions, metadata, write_cycle, loop),
        delete_topics.endpoint(metadata, settings),
        describe_acls.endpoint(),
        describe_cluster.endpoint(metadata, addresses),
        describe_configs.endpoint(node_id, settings, metadata, addresses),
        describe_groups.endpoint(groups),
        describe_log_dirs.endpoint(partitions, metadata, settings, disk),
        describe_producers.endpoint(partitions),
        describe_quorum.endpoint(settings),
        describe_topic_partitions.endpoint(metadata),
        describe_transactions.endpoint(transactions),
        elect_leaders.endpoint(metadata, settings),
        end_txn.endpoint(transactions, time),
        fetch_api.endpoint(fetch),
        find_coordinator.endpoint(groups, transactions, addresses),
        heartbeat.endpoint(groups),
        incremental_alter_configs.endpoint(node_id, topic_changes, settings),
        init_producer_id.endpoint(transactions, producer_ids, time),
        join_group.endpoint(groups),
        leave_group.endpoint(groups),
        list_config_resources.endpoint(metadata),
        list_groups.endpoint(groups),
        list_offsets.endpoint(partitions, offsets_by_time),
        list_partition_reassignments.endpoint(metadata),
        list_transactions.endpoint(transactions, time),
        metadata_api.endpoint(metadata, settings, topic_changes, addresses),
        offset_commit.endpoint(groups),
        offset_delete.endpoint(groups),
        offset_fetch.endpoint(groups),
        offset_for_leader_epoch.endpoint(partitions),
        produce_api.endpoint(produce),
        sync_group.endpoint(groups),
        txn_offset_commit.endpoint(groups, transactions, loop),
        unregister_broker.endpoint(metadata, settings),
        update_features.endpoint(),
        write_txn_markers.endpoint(marker_appends, peers),
    )
    table.update((endpoint.api_key, endpoint) for endpoint in endpoints)
    return table
