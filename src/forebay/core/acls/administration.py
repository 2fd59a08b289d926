"""ACLs as they appear in administrators' requests and responses."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, TypeVar

from forebay.core.acls.bindings import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
    check_names,
)
from forebay.core.acls.filters import AclFilter, check_filter
from forebay.wire.messages.create_acls import AclCreation
from forebay.wire.messages.delete_acls import DeleteAclsMatchingAcl
from forebay.wire.messages.describe_acls import AclDescription, DescribeAclsResource

E = TypeVar("E", bound=IntEnum)


def _known(kind: type[E], number: int) -> E:
    """Return the enum member for a code; UNKNOWN (0) for a code that only a later Kafka may know."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def read_creation(creation: AclCreation) -> AclBinding:
    """Read an ACL from CreateAcls. Raises KafkaError."""
    acl = AclBinding(
        _known(ResourceType, creation.resource_type),
        _known(PatternType, creation.resource_pattern_type),
        creation.resource_name,
        creation.principal,
        creation.host,
        _known(Operation, creation.operation),
        _known(Permission, creation.permission_type),
    )
    check_binding(acl)
    check_names(acl)
    return acl


def read_described(resource: Any, acl: Any) -> AclBinding:
    """Read an ACL from a response to DescribeAcls or DeleteAcls."""
    return AclBinding(
        _known(ResourceType, resource.resource_type),
        _known(PatternType, resource.pattern_type),
        resource.resource_name,
        acl.principal,
        acl.host,
        _known(Operation, acl.operation),
        _known(Permission, acl.permission_type),
    )


def read_filter(request: Any) -> AclFilter:
    """Read the filter of DescribeAcls, or one of DeleteAcls. Raises KafkaError."""
    wanted = AclFilter(
        resource_type=_known(ResourceType, request.resource_type_filter),
        pattern=_known(PatternType, request.pattern_type_filter),
        name=request.resource_name_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=_known(Operation, request.operation),
        permission=_known(Permission, request.permission_type),
    )
    check_filter(wanted)
    return wanted


def described(acls: Iterable[AclBinding], wanted: AclFilter) -> list[DescribeAclsResource]:
    """The rules that match, grouped by resource."""
    resources: dict[tuple[ResourceType, PatternType, str], list[AclDescription]] = {}
    for acl in sorted(acl for acl in acls if wanted.matches(acl)):
        resources.setdefault((acl.resource_type, acl.pattern, acl.name), []).append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return [
        DescribeAclsResource(resource_type=kind, pattern_type=pattern, resource_name=name, acls=found)
        for (kind, pattern, name), found in resources.items()
    ]


def deleted(acls: Iterable[AclBinding]) -> list[DeleteAclsMatchingAcl]:
    return [
        DeleteAclsMatchingAcl(
            resource_type=acl.resource_type,
            resource_name=acl.name,
            pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in sorted(acls)
    ]
