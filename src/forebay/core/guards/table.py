"""The table of every API: what a client needs, what it is answered otherwise, and the guard that sees to it.

`tests/core/guards` compares it with the APIs that are served, so none is served unchecked, and with the table
in docs/acls.md. APIs that are not served yet may be here.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.acls.bindings import Operation
from forebay.core.guards import administration, groups, metadata, records, shares, topics, transactions
from forebay.core.guards.guard import Guard, Shortcut, on_cluster, on_group, unguarded, with_code
from forebay.wire.messages import (
    OWN_KEYS_FROM,
    alter_partition_reassignments,
    append_copies,
    consumer_group_describe,
    describe_acls,
    describe_client_quotas,
    describe_disk,
    describe_failovers,
    describe_log_dirs,
    describe_quorum,
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
    is_administrative: bool = False
    """Whether the audit log has every such request, whatever becomes of it."""
    shortcut: Shortcut | None = None


_ALTER = "Alter Cluster"
_DESCRIBE = "Describe Cluster"
_ACTION = "ClusterAction Cluster"
_MEMBER = "Read Group"
_ALTER_CONFIGS = (
    "AlterConfigs of the Topic or Group, or Cluster for a broker;"
    " to name a dead-letter topic also Write of it, and Create if a broker would create it"
)

RULES: dict[int, Rule] = {
    0: Rule(
        "Write Topic; Write TransactionalId",
        "29 per partition; 53 for all; 53 also, without an authorizer too, for a transactional batch in a"
        " request without transactional id",
        records.produce,
        shortcut=records.may_produce,
    ),
    1: Rule("Read Topic; followers ClusterAction Cluster", "29 per partition", unguarded),
    2: Rule("Describe Topic", "29 per partition", records.list_offsets),
    3: Rule(
        "Describe Topic; to create it, Create Cluster or Topic",
        "29 per topic that was named, whether it exists or not; others are left out",
        metadata.metadata,
    ),
    8: Rule("Read Group, Read Topic", "30 for all; 29 per topic", groups.offset_commit),
    9: Rule(
        "Describe Group, Describe Topic",
        "30 per group; 29 per topic that was named, others are left out",
        groups.offset_fetch,
    ),
    10: Rule(
        "Describe Group; Describe TransactionalId; for share state ClusterAction Cluster",
        "30; 53; 31 per key",
        groups.find_coordinator,
    ),
    11: Rule(_MEMBER, "30", groups.join_group),
    12: Rule(_MEMBER, "30", groups.heartbeat),
    13: Rule(_MEMBER, "30", groups.leave_group),
    14: Rule(_MEMBER, "30", groups.sync_group),
    15: Rule("Describe Group", "30 per group", groups.describe_groups),
    16: Rule("Describe Cluster, or Describe Group", "groups are left out", groups.list_groups),
    17: Rule("nothing", "", unguarded),
    18: Rule("nothing", "", unguarded),
    19: Rule(
        "Create Cluster or Topic; for a view also Read of its source; its settings are shown with"
        " DescribeConfigs Topic",
        "29 per topic",
        topics.create_topics,
        is_administrative=True,
    ),
    20: Rule("Delete Topic", "29 per topic", topics.delete_topics, is_administrative=True),
    21: Rule("Delete Topic", "29 per partition", records.delete_records, is_administrative=True),
    22: Rule(
        "Write TransactionalId; without one, IdempotentWrite Cluster or Write of any topic",
        "53; 31",
        transactions.init_producer_id,
    ),
    23: Rule("ClusterAction Cluster, or Describe Topic", "29 per partition", records.offset_for_leader_epoch),
    24: Rule(
        "Write TransactionalId, Write Topic; from version 4 on ClusterAction Cluster",
        "53; 29, and 55 for the other topics; 31",
        transactions.add_partitions_to_txn,
    ),
    25: Rule("Write TransactionalId, Read Group", "53; 30", transactions.add_offsets_to_txn),
    26: Rule("Write TransactionalId", "53", transactions.end_txn),
    27: Rule("ClusterAction or Alter Cluster", "31 per partition", transactions.write_txn_markers),
    28: Rule(
        "Write TransactionalId, Read Group, Read Topic",
        "53 for all; 30 for all; 29 per topic",
        transactions.txn_offset_commit,
    ),
    29: Rule(_DESCRIBE, "31", on_cluster(Operation.DESCRIBE, with_code(describe_acls.DescribeAclsResponse))),
    30: Rule(
        _ALTER,
        "31 per ACL",
        on_cluster(Operation.ALTER, administration.refuse_create_acls),
        is_administrative=True,
    ),
    31: Rule(
        _ALTER,
        "31 per filter",
        on_cluster(Operation.ALTER, administration.refuse_delete_acls),
        is_administrative=True,
    ),
    32: Rule(
        "DescribeConfigs of the Topic or Group, or Cluster for a broker",
        "29, 30 or 31 per resource",
        topics.describe_configs,
    ),
    33: Rule(
        _ALTER_CONFIGS,
        "29, 30 or 31 per resource",
        topics.alter_topic_configs,
        is_administrative=True,
    ),
    34: Rule(
        _ALTER,
        "31 per partition",
        on_cluster(Operation.ALTER, administration.refuse_alter_replica_log_dirs),
        is_administrative=True,
    ),
    35: Rule(
        _DESCRIBE,
        "31",
        on_cluster(Operation.DESCRIBE, with_code(describe_log_dirs.DescribeLogDirsResponse)),
    ),
    36: Rule("nothing", "", unguarded),
    37: Rule(
        "Alter Topic; to drop messages of folded partitions also Delete Topic",
        "29 per topic",
        topics.create_partitions,
        is_administrative=True,
    ),
    38: Rule(
        "a login, by other means than a token; for another owner CreateTokens User",
        "64; 65",
        unguarded,
        is_administrative=True,
    ),
    39: Rule(
        "such a login of the token's owner, requester or renewer", "64; 63", unguarded, is_administrative=True
    ),
    40: Rule(
        "such a login of the token's owner, requester or renewer; of others Alter Cluster",
        "64; 63",
        unguarded,
        is_administrative=True,
    ),
    41: Rule(
        "such a login; for tokens of others Describe DelegationToken, or DescribeTokens User",
        "64; tokens are left out",
        unguarded,
    ),
    42: Rule("Delete Group", "30 per group", groups.delete_groups, is_administrative=True),
    43: Rule(
        _ALTER,
        "31",
        on_cluster(Operation.ALTER, administration.refuse_elect_leaders),
        is_administrative=True,
    ),
    44: Rule(
        _ALTER_CONFIGS,
        "29, 30 or 31 per resource",
        topics.incremental_alter,
        is_administrative=True,
    ),
    45: Rule(
        _ALTER,
        "31",
        on_cluster(
            Operation.ALTER, with_code(alter_partition_reassignments.AlterPartitionReassignmentsResponse)
        ),
        is_administrative=True,
    ),
    46: Rule(
        _DESCRIBE,
        "31",
        on_cluster(
            Operation.DESCRIBE, with_code(list_partition_reassignments.ListPartitionReassignmentsResponse)
        ),
    ),
    47: Rule("Delete Group, Read Topic", "30; 29 per topic", groups.offset_delete, is_administrative=True),
    48: Rule(
        "DescribeConfigs Cluster",
        "31",
        on_cluster(
            Operation.DESCRIBE_CONFIGS, with_code(describe_client_quotas.DescribeClientQuotasResponse)
        ),
    ),
    49: Rule(
        "AlterConfigs Cluster",
        "31 per entry",
        on_cluster(Operation.ALTER_CONFIGS, administration.refuse_alter_client_quotas),
        is_administrative=True,
    ),
    50: Rule(
        _DESCRIBE,
        "31",
        on_cluster(
            Operation.DESCRIBE,
            with_code(describe_user_scram_credentials.DescribeUserScramCredentialsResponse),
        ),
    ),
    51: Rule(
        _ALTER,
        "31 per user",
        on_cluster(Operation.ALTER, administration.refuse_alter_credentials),
        is_administrative=True,
    ),
    55: Rule(
        _DESCRIBE, "31", on_cluster(Operation.DESCRIBE, with_code(describe_quorum.DescribeQuorumResponse))
    ),
    57: Rule(
        _ALTER,
        "31",
        on_cluster(Operation.ALTER, with_code(update_features.UpdateFeaturesResponse)),
        is_administrative=True,
    ),
    60: Rule("nothing; operations are shown with Describe Cluster", "", metadata.describe_cluster),
    61: Rule("Read Topic", "29 per partition", records.describe_producers),
    64: Rule(
        _ALTER,
        "31",
        on_cluster(Operation.ALTER, with_code(unregister_broker.UnregisterBrokerResponse)),
        is_administrative=True,
    ),
    65: Rule(
        "Describe TransactionalId",
        "53 per id; topics that may not be described are left out",
        transactions.describe_transactions,
    ),
    66: Rule("Describe TransactionalId", "transactions are left out", transactions.list_transactions),
    68: Rule(
        "Read Group, Describe of the topics that are named",
        "30; 29; a pattern matches only topics that may be described",
        groups.consumer_group_heartbeat,
    ),
    69: Rule(
        "Describe Group, Describe of the topics that are assigned",
        "30 per group; 29 per group",
        groups.describe_members(
            consumer_group_describe.ConsumerGroupDescribeResponse,
            consumer_group_describe.DescribedGroup,
            ("assignment", "target_assignment"),
        ),
    ),
    74: Rule(
        "DescribeConfigs Cluster",
        "31",
        on_cluster(Operation.DESCRIBE_CONFIGS, with_code(list_config_resources.ListConfigResourcesResponse)),
    ),
    75: Rule(
        "Describe Topic",
        "29 per topic that was named, others are left out",
        metadata.describe_topic_partitions,
    ),
    76: Rule(
        "Read Group, Describe of the topics that are named",
        "30; 29",
        groups.member_heartbeat(share_group_heartbeat.ShareGroupHeartbeatResponse),
    ),
    77: Rule(
        "Describe Group, Describe of the topics that are assigned",
        "30 per group; 29 per group",
        groups.describe_members(
            share_group_describe.ShareGroupDescribeResponse,
            share_group_describe.DescribedGroup,
            ("assignment",),
        ),
    ),
    78: Rule(
        "Read Group, Read Topic",
        "30; 29 per partition",
        on_group(Operation.READ, with_code(share_fetch.ShareFetchResponse)),
    ),
    79: Rule(
        "Read Group, Read Topic",
        "30; 29 per partition",
        on_group(Operation.READ, with_code(share_acknowledge.ShareAcknowledgeResponse)),
    ),
    83: Rule(_ACTION, "31 per partition", shares.initialize_share_group_state),
    84: Rule(_ACTION, "31 per partition", shares.read_share_group_state),
    85: Rule(_ACTION, "31 per partition", shares.write_share_group_state),
    86: Rule(_ACTION, "31 per partition", shares.delete_share_group_state),
    87: Rule(_ACTION, "31 per partition", shares.read_share_group_state_summary),
    90: Rule(
        "Describe Group, Describe Topic",
        "30 per group; 29 per topic that was named, others are left out",
        shares.describe_share_group_offsets,
    ),
    91: Rule(
        "Read Group, Read Topic",
        "30; 29 per topic",
        shares.alter_share_group_offsets,
        is_administrative=True,
    ),
    92: Rule(
        "Delete Group, Read Topic",
        "30; 29 per topic",
        shares.delete_share_group_offsets,
        is_administrative=True,
    ),
    OWN_KEYS_FROM: Rule(
        _ACTION, "31", on_cluster(Operation.CLUSTER_ACTION, with_code(move_journal.MoveJournalResponse))
    ),
    OWN_KEYS_FROM + 1: Rule(
        _ACTION,
        "31",
        on_cluster(Operation.CLUSTER_ACTION, with_code(resume_dead_letters.ResumeDeadLettersResponse)),
    ),
    OWN_KEYS_FROM + 2: Rule(
        "Describe Group, Describe Topic", "partitions are left out", shares.describe_share_windows
    ),
    OWN_KEYS_FROM + 3: Rule("Read Topic", "29", records.describe_delays),
    OWN_KEYS_FROM + 4: Rule("Write Topic", "29", records.alter_delays, is_administrative=True),
    OWN_KEYS_FROM + 11: Rule(
        _ACTION, "31", on_cluster(Operation.CLUSTER_ACTION, with_code(folded_produce.FoldedProduceResponse))
    ),
    OWN_KEYS_FROM + 12: Rule(
        _ACTION,
        "31",
        on_cluster(Operation.CLUSTER_ACTION, with_code(folded_producers.FoldedProducersResponse)),
    ),
    OWN_KEYS_FROM + 13: Rule(
        _ACTION, "31", on_cluster(Operation.CLUSTER_ACTION, with_code(append_copies.AppendCopiesResponse))
    ),
    OWN_KEYS_FROM + 14: Rule(
        _ACTION,
        "31",
        on_cluster(Operation.CLUSTER_ACTION, with_code(hand_over_numbers.HandOverNumbersResponse)),
    ),
    OWN_KEYS_FROM + 20: Rule(
        _DESCRIBE,
        "31",
        on_cluster(Operation.DESCRIBE, with_code(describe_failovers.DescribeFailoversResponse)),
    ),
    OWN_KEYS_FROM + 21: Rule("Describe Topic", "29", records.describe_fills),
    OWN_KEYS_FROM + 22: Rule(
        _DESCRIBE,
        "31",
        on_cluster(Operation.DESCRIBE, with_code(describe_disk.DescribeDiskResponse)),
    ),
}

CHECKED_BY_HANDLERS = frozenset({1, 38, 39, 40, 41, 78, 79})
"""Fetch, ShareFetch and ShareAcknowledge: the partitions are those of a session, and most requests do not
name them. Their handlers ask about the topic of each partition that they read. Delegation tokens: what a
client may do depends on how it has logged in, and on whose each token is."""
