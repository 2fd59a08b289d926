"""Filters of DescribeAcls and DeleteAcls: they select rules."""

from __future__ import annotations

from forebay.core.acls.bindings import WILDCARD, AclBinding, Operation, PatternType, Permission, ResourceType
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    pattern: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: AclBinding) -> bool:
        if self.pattern is PatternType.MATCH:
            return self.name is None or applies_to(acl, self.name)
        if self.pattern not in (PatternType.ANY, acl.pattern):
            return False
        return self.name in (None, acl.name)


def applies_to(acl: AclBinding, name: str) -> bool:
    """True if a rule applies to the resource of this name."""
    if acl.pattern is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, WILDCARD)


def check_filter(wanted: AclFilter) -> None:
    """Raise KafkaError for a filter with a value that this broker does not know."""
    fields = (wanted.resource_type, wanted.pattern, wanted.operation, wanted.permission)
    unknown = [type(field).__name__ for field in fields if field == 0]
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the filter has a value that is not known here: {', '.join(unknown)}"
        )
