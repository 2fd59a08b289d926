"""Allowed operations: without an authorizer, every client may do everything.

Clients may ask which operations they are allowed on a topic, a group or the cluster. The answer is a bit
field: bit n stands for the operation with the code n.
"""

from __future__ import annotations

from enum import IntEnum

NOT_ASKED = -(2**31)
"""What stands in the field when the client did not ask."""


class Operation(IntEnum):
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


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


_ANYWHERE = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)

ON_TOPIC = _bits(
    *_ANYWHERE, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER
)
ON_GROUP = _bits(*_ANYWHERE, Operation.READ, Operation.DELETE)
ON_CLUSTER = _bits(
    *_ANYWHERE, Operation.CREATE, Operation.ALTER, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE
)


def operations(all_of_them: int, *, asked: bool) -> int:
    return all_of_them if asked else NOT_ASKED
