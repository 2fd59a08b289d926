"""Every API that is declared, by its key.

The module of an API is imported when the API is first asked for: a broker pays only for what its clients
speak. The class names follow from the module's name.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple

from forebay.wire.fields import NEVER, Request, Response


class Api(NamedTuple):
    key: int
    name: str
    request: type[Request]
    response: type[Response]
    min_version: int
    max_version: int
    flexible_from: int


_MODULES = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    17: "sasl_handshake",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    29: "describe_acls",
    30: "create_acls",
    31: "delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    34: "alter_replica_log_dirs",
    35: "describe_log_dirs",
    36: "sasl_authenticate",
    37: "create_partitions",
    38: "create_delegation_token",
    39: "renew_delegation_token",
    40: "expire_delegation_token",
    41: "describe_delegation_token",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    47: "offset_delete",
    48: "describe_client_quotas",
    49: "alter_client_quotas",
    50: "describe_user_scram_credentials",
    51: "alter_user_scram_credentials",
    55: "describe_quorum",
    57: "update_features",
    60: "describe_cluster",
    61: "describe_producers",
    64: "unregister_broker",
    65: "describe_transactions",
    66: "list_transactions",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    74: "list_config_resources",
    75: "describe_topic_partitions",
    76: "share_group_heartbeat",
    77: "share_group_describe",
    78: "share_fetch",
    79: "share_acknowledge",
    83: "initialize_share_group_state",
    84: "read_share_group_state",
    85: "write_share_group_state",
    86: "delete_share_group_state",
    87: "read_share_group_state_summary",
    90: "describe_share_group_offsets",
    91: "alter_share_group_offsets",
    92: "delete_share_group_offsets",
}

API_KEYS = tuple(_MODULES)
"""Kafka's own."""

OWN_KEYS_FROM = 16_384
"""APIs that Kafka does not have. They are advertised to our own clients only."""
_MODULES |= {
    OWN_KEYS_FROM: "move_journal",
    OWN_KEYS_FROM + 1: "resume_dead_letters",
    OWN_KEYS_FROM + 2: "describe_share_windows",
    OWN_KEYS_FROM + 3: "describe_delays",
    OWN_KEYS_FROM + 4: "alter_delays",
    OWN_KEYS_FROM + 11: "folded_produce",
    OWN_KEYS_FROM + 12: "folded_producers",
    OWN_KEYS_FROM + 13: "append_copies",
    OWN_KEYS_FROM + 14: "hand_over_numbers",
    OWN_KEYS_FROM + 20: "describe_failovers",
    OWN_KEYS_FROM + 21: "describe_fills",
    OWN_KEYS_FROM + 22: "describe_disk",
}

_UNDECLARED = {
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    7: "ControlledShutdown",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    56: "AlterPartition",
    58: "Envelope",
    59: "FetchSnapshot",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    67: "AllocateProducerIds",
    70: "ControllerRegistration",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    73: "AssignReplicasToDirs",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
}
"""Kafka's names of APIs that are not declared here."""


@cache
def api(api_key: int) -> Api:
    """What is declared for an API; KeyError for a key that is not."""
    stem = _MODULES[api_key]
    name = "".join(word.capitalize() for word in stem.split("_"))
    module = import_module(f"{__name__}.{stem}")
    request, response = getattr(module, f"{name}Request"), getattr(module, f"{name}Response")
    return Api(
        key=api_key,
        name=name,
        request=request,
        response=response,
        min_version=request.MIN_VERSION,
        max_version=request.MAX_VERSION,
        flexible_from=request.FLEXIBLE_FROM,
    )


def api_name(api_key: int) -> str:
    """The name of an API for people, whether it is declared here or not."""
    if api_key in _MODULES:
        return api(api_key).name
    return _UNDECLARED.get(api_key, f"API {api_key}")


@cache  # a key has 16 bits, which bounds what strangers can make us remember
def flexible_from(api_key: int) -> int:
    """The first version of an API whose headers have tagged fields: none, for an unknown key."""
    return api(api_key).flexible_from if api_key in _MODULES else NEVER
