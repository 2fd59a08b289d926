"""Every API this broker serves; what is not in this table is not advertised and not answered.

APIs from OWN_KEYS_FROM on are not Kafka's, and advertised to our own clients only.
"""

from __future__ import annotations

import asyncio
from functools import partial

from forebay.broker.authentication.logins import Logins
from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.addresses import Addresses
from forebay.broker.cluster.failover_times import FailoverTimes
from forebay.broker.cluster.peers import Peers
from forebay.broker.cluster.pending_failovers import PendingFailovers
from forebay.broker.cluster.topic_changes import TopicChanges
from forebay.broker.coordinators.groups import Groups
from forebay.broker.coordinators.markers import MarkerAppends
from forebay.broker.coordinators.producer_ids import ProducerIds
from forebay.broker.coordinators.share_coordinator import ShareStates
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.delays.service import DelayService
from forebay.broker.fetch.fetch_host import FetchHost
from forebay.broker.fetch.offsets_by_time import OffsetsByTime
from forebay.broker.fetch.topic_delays import TopicDelays
from forebay.broker.fetch.view_offsets import ViewOffsets
from forebay.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_delays,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    append_copies,
    consumer_group_describe,
    create_acls,
    create_partitions,
    create_topics,
    delegation_token,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delays,
    describe_disk,
    describe_failovers,
    describe_fills,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_share_windows,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    find_coordinator,
    folded_produce,
    folded_producers,
    group_request,
    hand_over_numbers,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    move_journal,
    offset_fetch,
    offset_for_leader_epoch,
    resume_dead_letters,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_state_request,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from forebay.broker.handlers import fetch as fetch_api
from forebay.broker.handlers import metadata as metadata_api
from forebay.broker.handlers import produce as produce_api
from forebay.broker.live_config import LiveConfig
from forebay.broker.moves.copy_appends import CopyAppends
from forebay.broker.moves.journal import MoveJournal
from forebay.broker.net.dispatch import API_VERSIONS_KEY, Endpoint
from forebay.broker.partition.table import PartitionTable
from forebay.broker.produce.produce_host import ProduceHost
from forebay.broker.produce.same_header_requests import remember
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.broker.shares.dead_letters.circles import CircleCheck
from forebay.broker.shares.service import ShareService
from forebay.broker.tls.setting_changes import TlsSettingChanges
from forebay.broker.upkeep.number_handover import NumberHandover
from forebay.broker.views.creation import ViewCreation
from forebay.broker.views.materializing import ViewFilling
from forebay.coordination.metadata import Metadata
from forebay.core.groups.shard import GroupShard
from forebay.storage.disk import Disk
from forebay.wire.messages import OWN_KEYS_FROM


def api_table(
    *,
    node_id: int,
    settings: LiveConfig,
    metadata: Metadata,
    partitions: PartitionTable,
    topic_changes: TopicChanges,
    view_creation: ViewCreation,
    addresses: Addresses,
    peers: Peers,
    produce: ProduceHost,
    fetch: FetchHost,
    view_offsets: ViewOffsets,
    offsets_by_time: OffsetsByTime,
    topic_delays: TopicDelays,
    delays: DelayService,
    groups: Groups,
    transactions: Transactions,
    share_states: ShareStates,
    shares: ShareService,
    moves: MoveJournal,
    copies: CopyAppends,
    numbers: NumberHandover,
    filling: ViewFilling,
    producer_ids: ProducerIds,
    marker_appends: MarkerAppends,
    failovers: FailoverTimes,
    pending: PendingFailovers,
    logins: Logins,
    tokens: delegation_token.TokenService,
    tls_changes: TlsSettingChanges,
    quotas: ClientQuotas,
    write_cycle: WriteCycle,
    disk: Disk,
    disk_report: describe_disk.DiskReport,
    background: Background,
    time: BrokerTime,
    loop: asyncio.AbstractEventLoop,
) -> dict[int, Endpoint]:
    """Each API with its key, the versions that are served, and its handler with the parts that it needs."""
    table: dict[int, Endpoint] = {}
    describe = partial(metadata_api.handle, metadata, settings, topic_changes, addresses, pending, quotas)
    find = partial(find_coordinator.handle, groups, transactions, share_states, addresses, pending)
    circles = CircleCheck(groups, peers, metadata, time, node_id=node_id)
    alter = partial(incremental_alter_configs.handle, node_id, topic_changes, settings, circles, tls_changes)
    endpoints = (
        Endpoint(0, 0, 13, partial(produce_api.handle, produce), partial(remember, produce)),
        Endpoint(1, 4, 18, partial(fetch_api.handle, fetch)),
        Endpoint(
            2, 1, 11, partial(list_offsets.handle, partitions, offsets_by_time, view_offsets, topic_delays)
        ),
        Endpoint(3, 0, 13, describe),
        Endpoint(8, 2, 10, partial(group_request.handle, groups, GroupShard.offset_commit)),
        Endpoint(9, 1, 10, partial(offset_fetch.handle, groups)),
        Endpoint(10, 0, 6, find),
        Endpoint(11, 0, 9, partial(group_request.handle, groups, GroupShard.join_group)),
        Endpoint(12, 0, 4, partial(group_request.handle, groups, GroupShard.heartbeat)),
        Endpoint(13, 0, 5, partial(group_request.handle, groups, GroupShard.leave_group)),
        Endpoint(14, 0, 5, partial(group_request.handle, groups, GroupShard.sync_group)),
        Endpoint(15, 0, 6, partial(describe_groups.handle, groups)),
        Endpoint(16, 0, 5, partial(list_groups.handle, groups)),
        Endpoint(17, 0, 1, partial(sasl_handshake.handle, logins)),
        Endpoint(API_VERSIONS_KEY, 0, 4, api_versions.ApiVersions(table).handle),
        Endpoint(19, 2, 7, partial(create_topics.handle, topic_changes, view_creation, settings, quotas)),
        Endpoint(20, 1, 6, partial(delete_topics.handle, metadata, settings, quotas, time)),
        Endpoint(21, 0, 2, partial(delete_records.handle, partitions, metadata, write_cycle, loop)),
        Endpoint(22, 0, 5, partial(init_producer_id.handle, transactions, producer_ids, time)),
        Endpoint(23, 2, 4, partial(offset_for_leader_epoch.handle, partitions, metadata)),
        Endpoint(24, 0, 5, partial(add_partitions_to_txn.handle, transactions, metadata, background, time)),
        Endpoint(25, 0, 4, partial(add_offsets_to_txn.handle, groups, transactions, time)),
        Endpoint(26, 0, 5, partial(end_txn.handle, transactions, time)),
        Endpoint(27, 1, 2, partial(write_txn_markers.handle, marker_appends, peers)),
        Endpoint(28, 0, 5, partial(txn_offset_commit.handle, groups, transactions, loop)),
        Endpoint(29, 1, 3, partial(describe_acls.handle, metadata, settings)),
        Endpoint(30, 1, 3, partial(create_acls.handle, metadata, settings)),
        Endpoint(31, 1, 3, partial(delete_acls.handle, metadata, settings)),
        Endpoint(32, 1, 4, partial(describe_configs.handle, node_id, settings, metadata, addresses)),
        Endpoint(33, 0, 2, partial(alter_configs.handle, topic_changes, settings, circles, tls_changes)),
        Endpoint(34, 1, 2, partial(alter_replica_log_dirs.handle, partitions, settings)),
        Endpoint(35, 1, 4, partial(describe_log_dirs.handle, partitions, metadata, settings, disk)),
        Endpoint(36, 0, 2, partial(sasl_authenticate.handle, logins)),
        Endpoint(37, 0, 3, partial(create_partitions.handle, topic_changes, settings, time, quotas)),
        Endpoint(38, 1, 3, partial(delegation_token.create, tokens)),
        Endpoint(39, 1, 2, partial(delegation_token.renew, tokens)),
        Endpoint(40, 1, 2, partial(delegation_token.expire, tokens)),
        Endpoint(41, 1, 3, partial(delegation_token.describe, tokens)),
        Endpoint(42, 0, 2, partial(delete_groups.handle, groups)),
        Endpoint(43, 0, 2, partial(elect_leaders.handle, metadata, settings)),
        Endpoint(44, 0, 1, alter),
        Endpoint(45, 0, 1, partial(alter_partition_reassignments.handle, metadata, settings)),
        Endpoint(46, 0, 0, partial(list_partition_reassignments.handle, metadata)),
        Endpoint(47, 0, 0, partial(group_request.handle, groups, GroupShard.offset_delete)),
        Endpoint(48, 0, 1, partial(describe_client_quotas.handle, metadata)),
        Endpoint(49, 0, 1, partial(alter_client_quotas.handle, metadata)),
        Endpoint(50, 0, 0, partial(describe_user_scram_credentials.handle, metadata)),
        Endpoint(51, 0, 0, partial(alter_user_scram_credentials.handle, metadata)),
        Endpoint(55, 0, 2, partial(describe_quorum.handle, settings)),
        Endpoint(57, 0, 2, update_features.handle),
        Endpoint(60, 0, 2, partial(describe_cluster.handle, metadata, addresses)),
        Endpoint(61, 0, 0, partial(describe_producers.handle, partitions)),
        Endpoint(64, 0, 0, partial(unregister_broker.handle, metadata, settings)),
        Endpoint(65, 0, 0, partial(describe_transactions.handle, transactions)),
        Endpoint(66, 0, 1, partial(list_transactions.handle, transactions, time)),
        Endpoint(68, 0, 1, partial(group_request.handle, groups, GroupShard.consumer_group_heartbeat)),
        Endpoint(69, 0, 1, partial(consumer_group_describe.handle, groups)),
        Endpoint(74, 0, 1, partial(list_config_resources.handle, metadata)),
        Endpoint(75, 0, 0, partial(describe_topic_partitions.handle, metadata)),
        Endpoint(76, 1, 1, partial(group_request.handle, groups, GroupShard.share_group_heartbeat)),
        Endpoint(77, 1, 1, partial(share_group_describe.handle, groups)),
        Endpoint(78, 1, 2, partial(share_fetch.handle, shares)),
        Endpoint(79, 1, 2, partial(share_acknowledge.handle, shares)),
        Endpoint(83, 0, 0, partial(share_state_request.handle, share_states, background)),
        Endpoint(84, 0, 0, partial(share_state_request.handle, share_states, background)),
        Endpoint(85, 0, 1, partial(share_state_request.handle, share_states, background)),
        Endpoint(86, 0, 0, partial(share_state_request.handle, share_states, background)),
        Endpoint(87, 0, 1, partial(share_state_request.handle, share_states, background)),
        Endpoint(90, 0, 1, partial(describe_share_group_offsets.handle, groups)),
        Endpoint(91, 0, 0, partial(group_request.handle, groups, GroupShard.alter_share_group_offsets)),
        Endpoint(92, 0, 0, partial(group_request.handle, groups, GroupShard.delete_share_group_offsets)),
        Endpoint(OWN_KEYS_FROM, 0, 0, partial(move_journal.handle, moves, background)),
        Endpoint(OWN_KEYS_FROM + 1, 0, 0, partial(resume_dead_letters.handle, shares)),
        Endpoint(OWN_KEYS_FROM + 2, 0, 0, partial(describe_share_windows.handle, shares)),
        Endpoint(OWN_KEYS_FROM + 3, 0, 0, partial(describe_delays.handle, delays, background)),
        Endpoint(OWN_KEYS_FROM + 4, 0, 0, partial(alter_delays.handle, delays, background)),
        Endpoint(OWN_KEYS_FROM + 11, 0, 0, partial(folded_produce.handle, produce, peers)),
        Endpoint(OWN_KEYS_FROM + 12, 0, 0, partial(folded_producers.handle, partitions, peers)),
        Endpoint(OWN_KEYS_FROM + 13, 0, 0, partial(append_copies.handle, copies, peers, background)),
        Endpoint(OWN_KEYS_FROM + 14, 0, 0, partial(hand_over_numbers.handle, numbers, peers, background)),
        Endpoint(OWN_KEYS_FROM + 20, 0, 0, partial(describe_failovers.handle, failovers, background)),
        Endpoint(OWN_KEYS_FROM + 21, 0, 0, partial(describe_fills.handle, filling)),
        Endpoint(OWN_KEYS_FROM + 22, 0, 0, partial(describe_disk.handle, disk_report, background)),
    )
    table.update((endpoint.api_key, endpoint) for endpoint in endpoints)
    return table
