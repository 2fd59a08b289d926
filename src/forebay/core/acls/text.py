"""How ACLs are stored: a short id that follows from the rule, and the rule as JSON.

The same rule has the same id, so adding it twice has no effect.
"""

from __future__ import annotations

import hashlib
import json

from forebay.core.acls.bindings import AclBinding, Operation, PatternType, Permission, ResourceType
from forebay.errors import ProtocolError

FORMAT = 1
NOT_STORED = ("UNKNOWN", "ANY", "MATCH")
"""Names that occur in requests only: no stored rule has them as type, pattern, operation or permission."""


def acl_id(acl: AclBinding) -> str:
    return hashlib.sha256(encode_acl(acl)).hexdigest()[:32]


def encode_acl(acl: AclBinding) -> bytes:
    stored = {
        "format": FORMAT,
        "type": acl.resource_type.name,
        "pattern": acl.pattern.name,
        "name": acl.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }
    return json.dumps(stored, sort_keys=True).encode()


def decode_acl(key: str, data: bytes) -> AclBinding:
    """Decode a rule. An unreadable rule may be a DENY: `doubt.py` says what holds in its place."""
    try:
        stored = json.loads(data)
        if stored["format"] != FORMAT:
            raise ProtocolError(f"the stored ACL {key} was made by a later version of Forebay")
        if any(stored[part] in NOT_STORED for part in ("type", "pattern", "operation", "permission")):
            raise ValueError("a rule that matches nothing")
        return AclBinding(
            ResourceType[stored["type"]],
            PatternType[stored["pattern"]],
            str(stored["name"]),
            str(stored["principal"]),
            str(stored["host"]),
            Operation[stored["operation"]],
            Permission[stored["permission"]],
        )
    except (ValueError, KeyError, TypeError):
        raise ProtocolError(f"the stored ACL {key} cannot be read: {data[:200]!r}") from None
