"""Every API this broker serves; what is not in this table is not advertised and not answered.

A row names its handler, which is imported with the first request, and the parts that the handler takes. APIs
of our own (from OWN_KEYS_FROM on) are advertised to our own clients only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.broker.net.dispatch import Endpoint
from forebay.errors import KafkaError
from forebay.lazy import load
from forebay.wire.api_keys import ApiKey
from forebay.wire.messages import api as declared

if TYPE_CHECKING:
    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.net.request_context import RequestContext

_HANDLERS = "forebay.broker.handlers."
_WAITS = "forebay.broker.partition.opening_waits:OpeningWaits"


class ServedApi(NamedTuple):
    min_version: int
    max_version: int
    needs: str = ""
    """The parts of a `Node` that the handler takes first, before the context and the request."""
    handler: str = ""
    """The module in `handlers/`, with ":function" if that is not `handle`. By default the API's name."""
    remember: str = ""
    """The function that makes a fast path for requests with the same header; empty if there is none."""
    waits: bool = False
    """True if a request waits until the partitions that it names are open."""
    from_broker: bool = False
    """True if only brokers of this cluster may send it."""


APIS: dict[int, ServedApi] = {
    ApiKey.PRODUCE: ServedApi(0, 13, "produce", remember="produce:remember", waits=True),
    ApiKey.FETCH: ServedApi(4, 18, "fetch", waits=True),
    ApiKey.LIST_OFFSETS: ServedApi(
        1, 11, "partitions offsets_by_time views_by_time local.delays remote.offsets", waits=True
    ),
    ApiKey.METADATA: ServedApi(0, 13, "metadata settings topic_changes addresses failover.pending quotas"),
    ApiKey.OFFSET_COMMIT: ServedApi(2, 10, "groups", handler="group_request"),
    ApiKey.OFFSET_FETCH: ServedApi(1, 10, "groups"),
    ApiKey.FIND_COORDINATOR: ServedApi(0, 6, "coordinators addresses failover.pending"),
    ApiKey.JOIN_GROUP: ServedApi(0, 9, "groups", handler="group_request"),
    ApiKey.HEARTBEAT: ServedApi(0, 4, "groups", handler="group_request"),
    ApiKey.LEAVE_GROUP: ServedApi(0, 5, "groups", handler="group_request"),
    ApiKey.SYNC_GROUP: ServedApi(0, 5, "groups", handler="group_request"),
    ApiKey.DESCRIBE_GROUPS: ServedApi(0, 6, "groups", handler="several_groups"),
    ApiKey.LIST_GROUPS: ServedApi(0, 5, "groups"),
    ApiKey.SASL_HANDSHAKE: ServedApi(0, 1, "logins"),
    ApiKey.API_VERSIONS: ServedApi(0, 4, "api_versions"),
    ApiKey.CREATE_TOPICS: ServedApi(2, 7, "topic_changes view_creation remote.adoption settings quotas"),
    ApiKey.DELETE_TOPICS: ServedApi(1, 6, "metadata settings quotas time"),
    ApiKey.DELETE_RECORDS: ServedApi(
        0, 2, "partitions metadata write_cycle loop remote.begin_at", waits=True
    ),
    ApiKey.INIT_PRODUCER_ID: ServedApi(0, 5, "transactions coordinators.producer_ids time"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ServedApi(2, 4, "partitions metadata", waits=True),
    ApiKey.ADD_PARTITIONS_TO_TXN: ServedApi(0, 5, "transactions metadata background time"),
    ApiKey.ADD_OFFSETS_TO_TXN: ServedApi(0, 4, "groups transactions time"),
    ApiKey.END_TXN: ServedApi(0, 5, "transactions time"),
    ApiKey.WRITE_TXN_MARKERS: ServedApi(1, 2, "coordinators.marker_appends peers"),
    ApiKey.TXN_OFFSET_COMMIT: ServedApi(0, 5, "groups transactions loop"),
    ApiKey.DESCRIBE_ACLS: ServedApi(1, 3, "metadata settings"),
    ApiKey.CREATE_ACLS: ServedApi(1, 3, "metadata settings"),
    ApiKey.DELETE_ACLS: ServedApi(1, 3, "metadata settings"),
    ApiKey.DESCRIBE_CONFIGS: ServedApi(1, 4, "node_id settings metadata addresses"),
    ApiKey.ALTER_CONFIGS: ServedApi(0, 2, "topic_changes settings circles tls_changes"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ServedApi(1, 2, "partitions settings"),
    ApiKey.DESCRIBE_LOG_DIRS: ServedApi(1, 4, "partitions metadata settings disk"),
    ApiKey.SASL_AUTHENTICATE: ServedApi(0, 2, "logins"),
    ApiKey.CREATE_PARTITIONS: ServedApi(0, 3, "topic_changes settings time quotas"),
    ApiKey.CREATE_DELEGATION_TOKEN: ServedApi(1, 3, "tokens", handler="delegation_token:create"),
    ApiKey.RENEW_DELEGATION_TOKEN: ServedApi(1, 2, "tokens", handler="delegation_token:renew"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ServedApi(1, 2, "tokens", handler="delegation_token:expire"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ServedApi(1, 3, "tokens", handler="delegation_token:describe"),
    ApiKey.DELETE_GROUPS: ServedApi(0, 2, "groups", handler="several_groups"),
    ApiKey.ELECT_LEADERS: ServedApi(0, 2, "metadata settings"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ServedApi(0, 1, "node_id topic_changes settings circles tls_changes"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ServedApi(0, 1, "metadata settings"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ServedApi(0, 0, "metadata"),
    ApiKey.OFFSET_DELETE: ServedApi(0, 0, "groups", handler="group_request"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ServedApi(0, 1, "metadata"),
    ApiKey.ALTER_CLIENT_QUOTAS: ServedApi(0, 1, "metadata"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ServedApi(0, 0, "metadata"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ServedApi(0, 0, "metadata"),
    ApiKey.DESCRIBE_QUORUM: ServedApi(0, 2, "settings"),
    ApiKey.UPDATE_FEATURES: ServedApi(0, 2),
    ApiKey.DESCRIBE_CLUSTER: ServedApi(0, 2, "metadata addresses"),
    ApiKey.DESCRIBE_PRODUCERS: ServedApi(0, 0, "partitions", waits=True),
    ApiKey.UNREGISTER_BROKER: ServedApi(0, 0, "metadata settings"),
    ApiKey.DESCRIBE_TRANSACTIONS: ServedApi(0, 0, "transactions"),
    ApiKey.LIST_TRANSACTIONS: ServedApi(0, 1, "transactions time"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ServedApi(0, 1, "groups", handler="group_request"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ServedApi(0, 1, "groups", handler="several_groups"),
    ApiKey.LIST_CONFIG_RESOURCES: ServedApi(0, 1, "metadata"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ServedApi(0, 0, "metadata"),
    ApiKey.SHARE_GROUP_HEARTBEAT: ServedApi(1, 1, "groups", handler="group_request"),
    ApiKey.SHARE_GROUP_DESCRIBE: ServedApi(1, 1, "groups", handler="several_groups"),
    ApiKey.SHARE_FETCH: ServedApi(1, 2, "shares", waits=True),
    ApiKey.SHARE_ACKNOWLEDGE: ServedApi(1, 2, "shares"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ServedApi(
        0, 0, "share_states background", handler="share_state_request"
    ),
    ApiKey.READ_SHARE_GROUP_STATE: ServedApi(0, 0, "share_states background", handler="share_state_request"),
    ApiKey.WRITE_SHARE_GROUP_STATE: ServedApi(0, 1, "share_states background", handler="share_state_request"),
    ApiKey.DELETE_SHARE_GROUP_STATE: ServedApi(
        0, 0, "share_states background", handler="share_state_request"
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ServedApi(
        0, 1, "share_states background", handler="share_state_request"
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ServedApi(0, 1, "groups", handler="several_groups"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ServedApi(0, 0, "groups", handler="group_request"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ServedApi(0, 0, "groups", handler="group_request"),
    ApiKey.MOVE_JOURNAL: ServedApi(0, 0, "move_journal background"),
    ApiKey.RESUME_DEAD_LETTERS: ServedApi(0, 0, "shares"),
    ApiKey.DESCRIBE_SHARE_WINDOWS: ServedApi(0, 1, "shares"),
    ApiKey.DESCRIBE_DELAYS: ServedApi(0, 0, "delays background"),
    ApiKey.ALTER_DELAYS: ServedApi(0, 0, "delays background"),
    ApiKey.FOLDED_PRODUCE: ServedApi(0, 0, "produce", from_broker=True),
    ApiKey.FOLDED_PRODUCERS: ServedApi(0, 0, "partitions", from_broker=True),
    ApiKey.APPEND_COPIES: ServedApi(0, 0, "copy_appends background", from_broker=True),
    ApiKey.HAND_OVER_NUMBERS: ServedApi(0, 0, "sequence_handover background", from_broker=True),
    ApiKey.DESCRIBE_FAILOVERS: ServedApi(0, 0, "failover.times background"),
    ApiKey.DESCRIBE_FILLS: ServedApi(0, 0, "filling"),
    ApiKey.DESCRIBE_DISK: ServedApi(0, 0, "disk_report background"),
    ApiKey.DESCRIBE_POSITIONS: ServedApi(0, 0, "positions"),
    ApiKey.DESCRIBE_ACTIVITY: ServedApi(0, 0, "metrics events server"),
    ApiKey.DESCRIBE_REMOTE_LOGS: ServedApi(0, 0, "partitions background"),
}


def open_endpoint(part: Callable[[str], Any], api_key: int) -> Endpoint | None:
    """An API with its handler, which has the parts that it needs; None if the API is not served."""
    api = APIS.get(api_key)
    if api is None:
        return None
    parts = [part(name) for name in api.needs.split()]
    handle = partial(handler(api_key), *parts)
    if api.waits:
        handle = partial(load(_WAITS).when_open, part("local.opening_waits"), int(api_key), handle)
    if api.from_broker:
        handle = partial(_of_broker, part("peers"), declared(api_key).response, handle)
    remember = partial(_load(api.remember), *parts) if api.remember else None
    return Endpoint(api_key, api.min_version, api.max_version, handle, remember)


def _of_broker(
    peers: Peers,
    response: Callable[..., Any],
    handle: Callable[[RequestContext, Any], Any],
    context: RequestContext,
    request: Any,
) -> Any:
    """Handle a request that a broker has sent, and refuse any other."""
    try:
        peers.check_sender(context.client_id)
    except KafkaError as error:
        return response(error_code=error.code, error_message=error.message)
    return handle(context, request)


def handler(api_key: int) -> Callable[..., Any]:
    """The function that a row of the table names."""
    found: Callable[..., Any] = _load(APIS[api_key].handler or ApiKey(api_key).name.lower())
    return found


def _load(name: str) -> Any:
    return load(_HANDLERS + (name if ":" in name else f"{name}:handle"))
