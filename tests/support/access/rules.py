"""Rules for the client `ada`, and topics for them."""

from __future__ import annotations

from forebay.core.acls.bindings import AclBinding, Operation, PatternType, Permission, ResourceType
from forebay.errors import ErrorCode
from support.access.principals import KnownClient
from support.brokers.local_broker import LocalBroker
from support.clients.wire_client import create_topic

T, G, C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
X = ResourceType.TRANSACTIONAL_ID
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MEMBER = "5e2b5d50-3a4e-4c53-9d9c-6d2f1e6c7a01"


def allow(operation: Operation, name: str, kind: ResourceType = T, principal: str = "User:ada") -> AclBinding:
    return AclBinding(kind, PatternType.LITERAL, name, principal, "*", operation, Permission.ALLOW)


def deny(operation: Operation, name: str, kind: ResourceType = T) -> AclBinding:
    return AclBinding(kind, PatternType.LITERAL, name, "User:ada", "*", operation, Permission.DENY)


def make(admin: KnownClient, *names: str) -> None:
    for name in names:
        (made,) = admin.call(create_topic(name), 7).topics
        assert made.error_code == ErrorCode.NONE, made


def topic_id(broker: LocalBroker, name: str) -> bytes:
    return broker.on_loop(lambda node: node.image.topics[name].topic_id)
