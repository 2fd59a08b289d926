"""Clients with a principal that the test chooses, on a broker in a thread: as if they had logged in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from forebay.broker.node import Node
from forebay.core.acls.bindings import AclBinding
from forebay.core.acls.text import acl_id
from forebay.errors import ErrorCode
from forebay.wire.messages.create_acls import AclCreation, CreateAclsRequest
from forebay.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from support.brokers.local_broker import LocalBroker
from support.clients.wire_client import WireClient

ADMIN = "User:admin"
ACCESS = {"authorizer.class.name": "acl", "super.users": ADMIN}
"""The settings of a broker on which only ADMIN may do anything that no ACL allows."""
ACLS_VERSION = 3


class KnownClient(WireClient):
    """A client on a connection whose principal can be set."""

    def __init__(self, broker: LocalBroker, principal: str = ADMIN) -> None:
        super().__init__(broker.bootstrap)
        self._broker = broker
        self.log_in(principal)

    def __enter__(self) -> Self:
        return self

    def log_in(self, principal: str) -> None:
        """From now on its requests are those of this principal."""
        port = self.socket.getsockname()[1]

        def change(node: Node) -> bool:
            for connection in node.server.connections:
                if connection.peer[1] == port:
                    connection.principal = principal
                    connection.memo = connection.last_prefix = None
                    return True
            return False

        while not self._broker.on_loop(change):  # it may not have been accepted yet
            pass


def add_acls(admin: WireClient, acls: Iterable[AclBinding]) -> None:
    creations = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    answer = admin.call(CreateAclsRequest(creations=creations), ACLS_VERSION)
    assert [result.error_code for result in answer.results] == [ErrorCode.NONE] * len(creations), answer


def delete_acl(admin: WireClient, acl: AclBinding) -> Any:
    wanted = DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.name,
        pattern_type_filter=acl.pattern,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    return admin.call(DeleteAclsRequest(filters=[wanted]), ACLS_VERSION)


def stored_acls(broker: LocalBroker) -> set[AclBinding]:
    acls = broker.on_loop(lambda node: node.image.acls)
    assert all(acl_id(acl) == key for key, acl in acls.items())
    return set(acls.values())
