"""Allowed operations as bit fields.

Clients may ask which operations they are allowed on a topic, a group or the cluster. The answer is a bit
field: bit n stands for the operation with the code n. Without an authorizer, every client may do everything.
"""

from __future__ import annotations

from collections.abc import Callable

from forebay.core.acls.bindings import Operation, ResourceType

NOT_ASKED = -(2**31)
"""The value of the field when the client did not ask."""

_ANYWHERE = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)

OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        *_ANYWHERE,
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
    ),
    ResourceType.GROUP: (*_ANYWHERE, Operation.READ, Operation.DELETE),
    ResourceType.CLUSTER: (
        *_ANYWHERE,
        Operation.CREATE,
        Operation.ALTER,
        Operation.CLUSTER_ACTION,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
}
"""The operations that each type of resource has."""


def operations_where(kind: ResourceType, is_allowed: Callable[[Operation], bool]) -> int:
    """The bit field of the operations of a type that are allowed."""
    return sum(1 << operation for operation in OPERATIONS[kind] if is_allowed(operation))


def _all(kind: ResourceType) -> int:
    return operations_where(kind, lambda _: True)


ON_TOPIC = _all(ResourceType.TOPIC)
ON_GROUP = _all(ResourceType.GROUP)
ON_CLUSTER = _all(ResourceType.CLUSTER)


def operations(all_of_them: int, *, asked: bool) -> int:
    return all_of_them if asked else NOT_ASKED
