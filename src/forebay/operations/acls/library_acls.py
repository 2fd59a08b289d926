"""ACLs by the admin client of confluent-kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay.core.acls.bindings import AclBinding, Operation, PatternType, Permission, ResourceType
from forebay.core.acls.filters import AclFilter
from forebay.operations.client import REQUEST_SECONDS, settle

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class LibraryAcls:
    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def create(self, acls: Sequence[AclBinding]) -> None:
        wanted = [_theirs(acl) for acl in acls]
        for future in self._admin.create_acls(wanted, request_timeout=REQUEST_SECONDS).values():
            settle(future)

    def describe(self, wanted: AclFilter) -> list[AclBinding]:
        found = settle(self._admin.describe_acls(_their_filter(wanted), request_timeout=REQUEST_SECONDS))
        return sorted(_ours(acl) for acl in found)

    def delete(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Delete rules; returns those that were deleted."""
        wanted = [_their_filter(each) for each in filters]
        futures = self._admin.delete_acls(wanted, request_timeout=REQUEST_SECONDS)
        return sorted({_ours(acl) for future in futures.values() for acl in settle(future)})


def _theirs(acl: AclBinding) -> Any:
    from confluent_kafka import admin

    return admin.AclBinding(
        admin.ResourceType(int(acl.resource_type)),
        acl.name,
        admin.ResourcePatternType(int(acl.pattern)),
        acl.principal,
        acl.host,
        admin.AclOperation(int(acl.operation)),
        admin.AclPermissionType(int(acl.permission)),
    )


def _their_filter(wanted: AclFilter) -> Any:
    from confluent_kafka import admin

    # Its types do not say that these may be missing, which means all.
    texts: tuple[Any, Any, Any] = (wanted.name, wanted.principal, wanted.host)
    name, principal, host = texts
    return admin.AclBindingFilter(
        admin.ResourceType(int(wanted.resource_type)),
        name,
        admin.ResourcePatternType(int(wanted.pattern)),
        principal,
        host,
        admin.AclOperation(int(wanted.operation)),
        admin.AclPermissionType(int(wanted.permission)),
    )


def _ours(acl: Any) -> AclBinding:
    return AclBinding(
        ResourceType(acl.restype.value),
        PatternType(acl.resource_pattern_type.value),
        acl.name,
        acl.principal,
        acl.host,
        Operation(acl.operation.value),
        Permission(acl.permission_type.value),
    )
