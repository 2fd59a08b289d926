"""Leaves a consumer group without librdkafka, for a member whose librdkafka does not close.

Its threads may continue to send heartbeats, so the member would keep its partitions for as long as the
process lives. A separate connection tells the broker that the member has left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forebay.errors import ErrorCode, ForebayError, KafkaError, known_code
from forebay.transport.blocking import BlockingConnection
from forebay.transport.connecting import connect
from forebay.transport.security import Security, security
from forebay.wire.fields import Request
from forebay.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

_SECONDS = 5.0
"""The time limit of one connection, and of one answer."""
_LEAVES = -1
"""The member epoch that means leaving."""
_ONE_COORDINATOR_VERSION = 3
_REASON = "the consumer was closed"


def leave_group(settings: Mapping[str, Any], group: str, member_id: str, *, reason: str = _REASON) -> None:
    """Raises ForebayError when no broker answers, or the coordinator refuses.

    `settings`: those of the consumer. A member that is no longer in the group counts as left.
    """
    protection = security({name: str(value) for name, value in settings.items()})
    host, port = _coordinator(str(settings["bootstrap.servers"]), protection, group)
    with _connection(host, port, protection) as coordinator:
        answer = coordinator.ask(_request(settings, group, member_id, reason))
    for code in (answer.error_code, *(each.error_code for each in getattr(answer, "members", ()))):
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            raise KafkaError(known_code(code), f"the coordinator of group {group} refuses")


def _request(settings: Mapping[str, Any], group: str, member_id: str, reason: str) -> Request:
    if str(settings.get("group.protocol", "")).lower() == "consumer":
        return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=_LEAVES)
    member = MemberIdentity(member_id=member_id, reason=reason)
    return LeaveGroupRequest(group_id=group, member_id=member_id, members=[member])


def _coordinator(servers: str, protection: Security, group: str) -> tuple[str, int]:
    request = FindCoordinatorRequest(key=group)
    trouble: ForebayError | None = None
    for address in servers.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with _connection(host.strip("[]"), int(port), protection) as broker:
                answer = broker.ask(request, _ONE_COORDINATOR_VERSION)
            if not answer.error_code:
                return answer.host, answer.port
            trouble = KafkaError(known_code(answer.error_code), f"no coordinator for group {group}")
        except (ForebayError, ValueError) as error:
            trouble = error if isinstance(error, ForebayError) else ForebayError(f"{address}: {error}")
    raise trouble or ForebayError("there is no broker to ask")


def _connection(host: str, port: int, protection: Security) -> BlockingConnection:
    connected = connect(host, port, protection, _SECONDS)
    return BlockingConnection(
        connected,
        f"{host}:{port}",
        client_id="forebay-close",
        timeout_s=_SECONDS,
        new_login=protection.login,
    )
