"""Rules in words, as people type them: `User:ada read,write topic orders`."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.core.acls.bindings import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
)
from forebay.core.acls.filters import AclFilter
from forebay.core.acls.operations import OPERATIONS
from forebay.errors import ForebayError, KafkaError

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
    "user": ResourceType.USER,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
}
WORDS = {
    operation.name.lower().replace("_", "-"): operation
    for operation in Operation
    if Operation.ANY < operation <= Operation.DESCRIBE_TOKENS
}


class WrongRule(ForebayError):
    """The words say no rule that there can be."""


def read_operations(text: str) -> list[Operation]:
    """The operations of a text such as "read,write"."""
    found = []
    for word in text.lower().replace("_", "-").split(","):
        if word.strip() not in WORDS:
            raise WrongRule(f"{word!r} is no operation: use {', '.join(WORDS)}")
        found.append(WORDS[word.strip()])
    return found


def operations_of(kind: ResourceType) -> list[str]:
    """The words of the operations that such a resource has."""
    known = (Operation.ALL, *OPERATIONS[kind])
    return [word for word, operation in WORDS.items() if operation in known]


def rules_of(
    principal: str,
    operations: Sequence[Operation],
    resource: str,
    name: str | None,
    *,
    deny: bool,
    prefix: bool,
    host: str = WILDCARD,
) -> list[AclBinding]:
    """A rule for each operation. Raises WrongRule."""
    kind = RESOURCES[resource]
    found = [
        AclBinding(
            kind,
            PatternType.PREFIXED if prefix else PatternType.LITERAL,
            resource_name(kind, name),
            principal,
            host,
            operation,
            Permission.DENY if deny else Permission.ALLOW,
        )
        for operation in operations
    ]
    for each in found:
        try:
            check_binding(each)
        except KafkaError as error:
            raise WrongRule(error.message) from None
        if word_of(each.operation) not in operations_of(kind):
            words = ", ".join(operations_of(kind))
            raise WrongRule(f"a {resource} has no operation {word_of(each.operation)}: use {words}")
    return found


def resource_name(kind: ResourceType, name: str | None) -> str:
    if kind is ResourceType.CLUSTER:
        if name not in (None, CLUSTER_NAME):
            raise WrongRule("there is one cluster: leave its name out")
        return CLUSTER_NAME
    if name is None:
        raise WrongRule("which one? Give a NAME, or '*' for all")
    if kind is ResourceType.USER and name != WILDCARD and not name.startswith("User:"):
        raise WrongRule(f"users are named as principals here: write User:{name}")
    return name


def word_of(operation: Operation) -> str:
    return operation.name.lower().replace("_", "-")


def facts_of(each: AclBinding) -> dict[str, str]:
    """A rule as words, in the order in which tables show them."""
    return {
        "principal": each.principal,
        "permission": each.permission.name.lower(),
        "operation": word_of(each.operation),
        "resource": each.resource_type.name.lower().replace("_", "-"),
        "name": each.name,
        "pattern": each.pattern.name.lower(),
        "host": each.host,
    }


def exactly(rule: AclBinding) -> AclFilter:
    """A filter that matches this rule and no other."""
    return AclFilter(
        resource_type=rule.resource_type,
        pattern=rule.pattern,
        name=rule.name,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission=rule.permission,
    )
