"""The rules that hold in place of a stored ACL that cannot be read.

The ACL may have been a DENY, so the widest DENY rules that fit it take its place: each part that can be read
is kept, and every other part matches everything. An ACL that is known to have been an ALLOW is left out,
because less is allowed without it. An ACL of another format may mean anything.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, TypeVar

from forebay.core.acls.bindings import (
    EVERYONE,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from forebay.core.acls.text import FORMAT, NOT_STORED

E = TypeVar("E", bound=Enum)

_KINDS = tuple(kind for kind in ResourceType if kind.name not in NOT_STORED)


def denials(data: bytes) -> tuple[AclBinding, ...]:
    stored = _fields(data)
    if stored.get("permission") == Permission.ALLOW.name:
        return ()
    kind = _member(ResourceType, stored.get("type"))
    pattern, name = _member(PatternType, stored.get("pattern")), stored.get("name")
    if kind is None or pattern is None or not isinstance(name, str):
        pattern, name = PatternType.LITERAL, WILDCARD
    principal = stored.get("principal")
    return tuple(
        AclBinding(
            each,
            pattern,
            name,
            principal if isinstance(principal, str) else EVERYONE,
            WILDCARD,
            _member(Operation, stored.get("operation")) or Operation.ALL,
            Permission.DENY,
        )
        for each in (_KINDS if kind is None else (kind,))
    )


def _fields(data: bytes) -> dict[str, Any]:
    """The fields that can be read; none if the ACL is of another format."""
    try:
        stored = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return stored if isinstance(stored, dict) and stored.get("format") == FORMAT else {}


def _member(kind: type[E], name: object) -> E | None:
    return kind.__members__.get(name) if isinstance(name, str) and name not in NOT_STORED else None
