"""The table of every API: the permissions it requires, the error without them, and the guard.

`tests/core/guards` compares it with the APIs that are served, so none is served unchecked, and with the table
in docs/acls.md. APIs that are not served yet may be here.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.acls.bindings import Operation
from forebay.core.guards import administration, groups, metadata, records, shares, topics, transactions
from forebay.core.guards.guard import Guard, Shortcut, on_cluster, on_group, unguarded, with_code
from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Struct
from forebay.wire.messages import (
    alter_partition_reassignments,
    append_copies,
    consumer_group_describe,
    describe_acls,
    describe_activity,
    describe_client_quotas,
    describe_disk,
    describe_failovers,
    describe_log_dirs,
    describe_quorum,
    describe_remote_logs,
    describe_user_scram_credentials,
    folded_produce,
    folded_producers,
    hand_over_numbers,
    list_config_resources,
    list_partition_reassignments,
    move_journal,
    resume_dead_letters,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    unregister_broker,
    update_features,
)


class Rule(NamedTuple):
    needs: str
    denied: str
    guard: Guard
    shortcut: Shortcut | None = None


_ALTER = "Alter Cluster"
_DESCRIBE = "Describe Cluster"
_ACTION = "ClusterAction Cluster"
_OPERATIONS = {
    _ALTER: Operation.ALTER,
    _DESCRIBE: Operation.DESCRIBE,
    _ACTION: Operation.CLUSTER_ACTION,
}
_MEMBER = "Read Group"
_ALTER_CONFIGS = (
    "AlterConfigs of the Topic or Group, or Cluster for a broker;"
    " to name a dead-letter topic also Write of it, and Create if a broker would create it"
)


def _on_cluster(needed: str, response: type[Struct]) -> Rule:
    """The rule of an API that is about the cluster, and is refused as a whole."""
    return Rule(needed, "31", on_cluster(_OPERATIONS[needed], with_code(response)))


RULES: dict[int, Rule] = {
    ApiKey.PRODUCE: Rule(
        "Write Topic; Write TransactionalId",
        "29 per partition; 53 for all; 53 also, without an authorizer too, for a transactional batch in a"
        " request without transactional id",
        records.produce,
        shortcut=records.may_produce,
    ),
    ApiKey.FETCH: Rule("Read Topic; followers ClusterAction Cluster", "29 per partition", unguarded),
    ApiKey.LIST_OFFSETS: Rule("Describe Topic", "29 per partition", records.list_offsets),
    ApiKey.METADATA: Rule(
        "Describe Topic; to create it, Create Cluster or Topic",
        "29 per topic that was named, whether it exists or not; others are left out",
        metadata.metadata,
    ),
    ApiKey.OFFSET_COMMIT: Rule("Read Group, Read Topic", "30 for all; 29 per topic", groups.offset_commit),
    ApiKey.OFFSET_FETCH: Rule(
        "Describe Group, Describe Topic",
        "30 per group; 29 per topic that was named, others are left out",
        groups.offset_fetch,
    ),
    ApiKey.FIND_COORDINATOR: Rule(
        "Describe Group; Describe TransactionalId; for share state ClusterAction Cluster",
        "30; 53; 31 per key",
        groups.find_coordinator,
    ),
    ApiKey.JOIN_GROUP: Rule(_MEMBER, "30", groups.join_group),
    ApiKey.HEARTBEAT: Rule(_MEMBER, "30", groups.heartbeat),
    ApiKey.LEAVE_GROUP: Rule(_MEMBER, "30", groups.leave_group),
    ApiKey.SYNC_GROUP: Rule(_MEMBER, "30", groups.sync_group),
    ApiKey.DESCRIBE_GROUPS: Rule("Describe Group", "30 per group", groups.describe_groups),
    ApiKey.LIST_GROUPS: Rule(
        "Describe Cluster, or Describe Group", "groups are left out", groups.list_groups
    ),
    ApiKey.SASL_HANDSHAKE: Rule("nothing", "", unguarded),
    ApiKey.API_VERSIONS: Rule("nothing", "", unguarded),
    ApiKey.CREATE_TOPICS: Rule(
        "Create Cluster or Topic; for a view also Read of its source; to restore one from the object store"
        " also Alter Cluster; its settings are shown with DescribeConfigs Topic",
        "29 per topic",
        topics.create_topics,
    ),
    ApiKey.DELETE_TOPICS: Rule("Delete Topic", "29 per topic", topics.delete_topics),
    ApiKey.DELETE_RECORDS: Rule("Delete Topic", "29 per partition", records.delete_records),
    ApiKey.INIT_PRODUCER_ID: Rule(
        "Write TransactionalId; without one, IdempotentWrite Cluster or Write of any topic",
        "53; 31",
        transactions.init_producer_id,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rule(
        "ClusterAction Cluster, or Describe Topic", "29 per partition", records.offset_for_leader_epoch
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Rule(
        "Write TransactionalId, Write Topic; from version 4 on ClusterAction Cluster",
        "53; 29, and 55 for the other topics; 31",
        transactions.add_partitions_to_txn,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Rule(
        "Write TransactionalId, Read Group", "53; 30", transactions.add_offsets_to_txn
    ),
    ApiKey.END_TXN: Rule("Write TransactionalId", "53", transactions.end_txn),
    ApiKey.WRITE_TXN_MARKERS: Rule(
        "ClusterAction or Alter Cluster", "31 per partition", transactions.write_txn_markers
    ),
    ApiKey.TXN_OFFSET_COMMIT: Rule(
        "Write TransactionalId, Read Group, Read Topic",
        "53 for all; 30 for all; 29 per topic",
        transactions.txn_offset_commit,
    ),
    ApiKey.DESCRIBE_ACLS: _on_cluster(_DESCRIBE, describe_acls.DescribeAclsResponse),
    ApiKey.CREATE_ACLS: Rule(
        _ALTER, "31 per ACL", on_cluster(Operation.ALTER, administration.refuse_create_acls)
    ),
    ApiKey.DELETE_ACLS: Rule(
        _ALTER, "31 per filter", on_cluster(Operation.ALTER, administration.refuse_delete_acls)
    ),
    ApiKey.DESCRIBE_CONFIGS: Rule(
        "DescribeConfigs of the Topic or Group, or Cluster for a broker",
        "29, 30 or 31 per resource",
        topics.describe_configs,
    ),
    ApiKey.ALTER_CONFIGS: Rule(_ALTER_CONFIGS, "29, 30 or 31 per resource", topics.alter_topic_configs),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Rule(
        _ALTER, "31 per partition", on_cluster(Operation.ALTER, administration.refuse_alter_replica_log_dirs)
    ),
    ApiKey.DESCRIBE_LOG_DIRS: _on_cluster(_DESCRIBE, describe_log_dirs.DescribeLogDirsResponse),
    ApiKey.SASL_AUTHENTICATE: Rule("nothing", "", unguarded),
    ApiKey.CREATE_PARTITIONS: Rule(
        "Alter Topic; to drop messages of folded partitions also Delete Topic",
        "29 per topic",
        topics.create_partitions,
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: Rule(
        "a login, by other means than a token; for another owner CreateTokens User", "64; 65", unguarded
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: Rule(
        "such a login of the token's owner, requester or renewer", "64; 63", unguarded
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Rule(
        "such a login of the token's owner, requester or renewer; of others Alter Cluster",
        "64; 63",
        unguarded,
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Rule(
        "such a login; for tokens of others Describe DelegationToken, or DescribeTokens User",
        "64; tokens are left out",
        unguarded,
    ),
    ApiKey.DELETE_GROUPS: Rule("Delete Group", "30 per group", groups.delete_groups),
    ApiKey.ELECT_LEADERS: Rule(
        _ALTER, "31", on_cluster(Operation.ALTER, administration.refuse_elect_leaders)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Rule(
        _ALTER_CONFIGS, "29, 30 or 31 per resource", topics.incremental_alter
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _on_cluster(
        _ALTER, alter_partition_reassignments.AlterPartitionReassignmentsResponse
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _on_cluster(
        _DESCRIBE, list_partition_reassignments.ListPartitionReassignmentsResponse
    ),
    ApiKey.OFFSET_DELETE: Rule("Delete Group, Read Topic", "30; 29 per topic", groups.offset_delete),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Rule(
        "DescribeConfigs Cluster",
        "31",
        on_cluster(
            Operation.DESCRIBE_CONFIGS, with_code(describe_client_quotas.DescribeClientQuotasResponse)
        ),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Rule(
        "AlterConfigs Cluster",
        "31 per entry",
        on_cluster(Operation.ALTER_CONFIGS, administration.refuse_alter_client_quotas),
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Rule(
        _DESCRIBE,
        "31",
        on_cluster(
            Operation.DESCRIBE,
            with_code(describe_user_scram_credentials.DescribeUserScramCredentialsResponse),
        ),
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Rule(
        _ALTER, "31 per user", on_cluster(Operation.ALTER, administration.refuse_alter_credentials)
    ),
    ApiKey.DESCRIBE_QUORUM: _on_cluster(_DESCRIBE, describe_quorum.DescribeQuorumResponse),
    ApiKey.UPDATE_FEATURES: _on_cluster(_ALTER, update_features.UpdateFeaturesResponse),
    ApiKey.DESCRIBE_CLUSTER: Rule(
        "nothing; operations are shown with Describe Cluster", "", metadata.describe_cluster
    ),
    ApiKey.DESCRIBE_PRODUCERS: Rule("Read Topic", "29 per partition", records.describe_producers),
    ApiKey.UNREGISTER_BROKER: _on_cluster(_ALTER, unregister_broker.UnregisterBrokerResponse),
    ApiKey.DESCRIBE_TRANSACTIONS: Rule(
        "Describe TransactionalId",
        "53 per id; topics that may not be described are left out",
        transactions.describe_transactions,
    ),
    ApiKey.LIST_TRANSACTIONS: Rule(
        "Describe TransactionalId", "transactions are left out", transactions.list_transactions
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Rule(
        "Read Group, Describe of the topics that are named",
        "30; 29; a pattern matches only topics that may be described",
        groups.consumer_group_heartbeat,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Rule(
        "Describe Group, Describe of the topics that are assigned",
        "30 per group; 29 per group",
        groups.describe_members(
            consumer_group_describe.ConsumerGroupDescribeResponse,
            consumer_group_describe.DescribedGroup,
            ("assignment", "target_assignment"),
        ),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Rule(
        "DescribeConfigs Cluster",
        "31",
        on_cluster(Operation.DESCRIBE_CONFIGS, with_code(list_config_resources.ListConfigResourcesResponse)),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Rule(
        "Describe Topic",
        "29 per topic that was named, others are left out",
        metadata.describe_topic_partitions,
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: Rule(
        "Read Group, Describe of the topics that are named",
        "30; 29",
        groups.member_heartbeat(share_group_heartbeat.ShareGroupHeartbeatResponse),
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: Rule(
        "Describe Group, Describe of the topics that are assigned",
        "30 per group; 29 per group",
        groups.describe_members(
            share_group_describe.ShareGroupDescribeResponse,
            share_group_describe.DescribedGroup,
            ("assignment",),
        ),
    ),
    ApiKey.SHARE_FETCH: Rule(
        "Read Group, Read Topic",
        "30; 29 per partition",
        on_group(Operation.READ, with_code(share_fetch.ShareFetchResponse)),
    ),
    ApiKey.SHARE_ACKNOWLEDGE: Rule(
        "Read Group, Read Topic",
        "30; 29 per partition",
        on_group(Operation.READ, with_code(share_acknowledge.ShareAcknowledgeResponse)),
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Rule(
        _ACTION, "31 per partition", shares.initialize_share_group_state
    ),
    ApiKey.READ_SHARE_GROUP_STATE: Rule(_ACTION, "31 per partition", shares.read_share_group_state),
    ApiKey.WRITE_SHARE_GROUP_STATE: Rule(_ACTION, "31 per partition", shares.write_share_group_state),
    ApiKey.DELETE_SHARE_GROUP_STATE: Rule(_ACTION, "31 per partition", shares.delete_share_group_state),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Rule(
        _ACTION, "31 per partition", shares.read_share_group_state_summary
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Rule(
        "Describe Group, Describe Topic",
        "30 per group; 29 per topic that was named, others are left out",
        shares.describe_share_group_offsets,
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Rule(
        "Read Group, Read Topic", "30; 29 per topic", shares.alter_share_group_offsets
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Rule(
        "Delete Group, Read Topic", "30; 29 per topic", shares.delete_share_group_offsets
    ),
    ApiKey.MOVE_JOURNAL: _on_cluster(_ACTION, move_journal.MoveJournalResponse),
    ApiKey.RESUME_DEAD_LETTERS: _on_cluster(_ACTION, resume_dead_letters.ResumeDeadLettersResponse),
    ApiKey.DESCRIBE_SHARE_WINDOWS: Rule(
        "Describe Group, Describe Topic", "partitions are left out", shares.describe_share_windows
    ),
    ApiKey.DESCRIBE_DELAYS: Rule("Read Topic", "29", records.describe_delays),
    ApiKey.ALTER_DELAYS: Rule("Write Topic", "29", records.alter_delays),
    ApiKey.FOLDED_PRODUCE: _on_cluster(_ACTION, folded_produce.FoldedProduceResponse),
    ApiKey.FOLDED_PRODUCERS: _on_cluster(_ACTION, folded_producers.FoldedProducersResponse),
    ApiKey.APPEND_COPIES: _on_cluster(_ACTION, append_copies.AppendCopiesResponse),
    ApiKey.HAND_OVER_NUMBERS: _on_cluster(_ACTION, hand_over_numbers.HandOverNumbersResponse),
    ApiKey.DESCRIBE_FAILOVERS: _on_cluster(_DESCRIBE, describe_failovers.DescribeFailoversResponse),
    ApiKey.DESCRIBE_FILLS: Rule("Describe Topic", "29", records.describe_fills),
    ApiKey.DESCRIBE_DISK: _on_cluster(_DESCRIBE, describe_disk.DescribeDiskResponse),
    ApiKey.DESCRIBE_POSITIONS: Rule(
        "ClusterAction Cluster, or Describe Topic", "29 per partition", records.describe_positions
    ),
    ApiKey.DESCRIBE_ACTIVITY: _on_cluster(_DESCRIBE, describe_activity.DescribeActivityResponse),
    ApiKey.DESCRIBE_REMOTE_LOGS: _on_cluster(_DESCRIBE, describe_remote_logs.DescribeRemoteLogsResponse),
}

CHECKED_BY_HANDLERS = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    }
)
"""Fetch, ShareFetch and ShareAcknowledge: the partitions are those of a session, and most requests do not
name them. Their handlers check the topic of each partition that they read. Delegation tokens: the permissions
depend on how the client logged in, and on the owner of each token."""
