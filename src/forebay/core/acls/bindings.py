"""An ACL: one rule that allows or denies a principal an operation on resources of a name or a prefix.

The numbers and words are Kafka's. ANY and MATCH occur in filters only, never in a stored rule. UNKNOWN stands
for a value from a newer client that this broker does not know; it is refused.
"""

from __future__ import annotations

from enum import IntEnum
from ipaddress import ip_address, ip_network

from forebay.config.names import WHITE_SPACE, is_trimmed
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass

WILDCARD = "*"
"""As a literal name: every resource of the type. As a host: every host."""
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""
EVERYONE = "User:*"
NAME_LENGTH_MAX = 32_767


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    resource_type: ResourceType
    pattern: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        kind = self.resource_type.name.lower()
        resource = kind if self.resource_type is ResourceType.CLUSTER else f"{kind} {self.name}"
        if self.pattern is PatternType.PREFIXED:
            resource += "*"
        where = "" if self.host == WILDCARD else f" from {self.host}"
        return (
            f"{self.permission.name.lower()} {self.principal} {self.operation.name.lower()} {resource}{where}"
        )


def check_binding(binding: AclBinding) -> None:
    """Raise KafkaError for a rule that cannot be stored: it would never match, or has an unknown meaning."""
    _check_resource(binding)
    if binding.operation in (Operation.UNKNOWN, Operation.ANY):
        raise _invalid("the operation of an ACL is one operation or ALL")
    if binding.permission in (Permission.UNKNOWN, Permission.ANY):
        raise _invalid("the permission of an ACL is ALLOW or DENY")
    kind, _, name = binding.principal.partition(":")
    if not kind or not name or len(binding.principal) > NAME_LENGTH_MAX:
        raise _invalid(f"{binding.principal!r} is no principal: write a type and a name, such as User:ada")
    check_host(binding.host)


def check_names(binding: AclBinding) -> None:
    """Raise KafkaError for a new rule with an impossible principal or topic: a DENY for "User:ada " would
    deny nothing to anybody. Groups and transactional ids may have any name. Rules that exist already can
    still be named, to delete them."""
    if not all(is_trimmed(part) for part in binding.principal.split(":", 1)):
        raise _invalid(f"{binding.principal!r} has {WHITE_SPACE.format(what='user')}")
    if binding.resource_type is ResourceType.TOPIC and not is_trimmed(binding.name):
        raise _invalid(f"{binding.name!r} has {WHITE_SPACE.format(what='topic')}")


def _check_resource(binding: AclBinding) -> None:
    if binding.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid("the resource of an ACL has one type, such as TOPIC")
    if binding.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid("the pattern of an ACL is LITERAL or PREFIXED; ANY and MATCH are for filters")
    if not binding.name:
        raise _invalid("the resource of an ACL has a name; * means all")
    if len(binding.name) > NAME_LENGTH_MAX:
        raise _invalid(f"the name of a resource has at most {NAME_LENGTH_MAX} characters")
    if binding.resource_type is ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        raise _invalid(f"the only resource of the type CLUSTER is {CLUSTER_NAME}")


def check_host(host: str) -> None:
    """Raise KafkaError unless the host is `*`, one IP address, or a range such as 10.0.0.0/8. Host names are
    not looked up: such an ACL would depend on who answers for the name."""
    if host == WILDCARD:
        return
    try:
        if "/" in host:
            ip_network(host)
        else:
            ip_address(host)
    except ValueError:
        raise _invalid(
            f"{host!r} is no host: write * for all, an IP address, or a range such as 10.0.0.0/8"
        ) from None


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, problem)
