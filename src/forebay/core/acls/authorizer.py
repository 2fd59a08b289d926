"""Decides if a principal may do something: by the rules, the super users, and a cache of decisions.

A decision is kept until the rules change, so a repeated question costs one look-up. The cache is bounded,
because clients choose the names that they ask about.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.core.acls.bindings import AclBinding, Operation, ResourceType
from forebay.core.acls.index import AclIndex
from forebay.core.acls.name_families import NameFamilies
from forebay.core.acls.operations import operations_where

_DECISIONS_MAX = 20_000
_FAMILIES_MAX = 100
_NAME_LENGTH_KEPT = 300
"""Longer names are possible. Decisions about them are not cached."""


class Authorizer:
    def __init__(self, *, super_users: frozenset[str] = frozenset(), allow_if_no_acl: bool = False) -> None:
        self.super_users = super_users
        self.allow_if_no_acl = allow_if_no_acl
        self._acls: Mapping[str, AclBinding] = {}
        self._index = AclIndex()
        self._decisions: dict[tuple[str, str, Operation, ResourceType, str], bool] = {}
        self._some: dict[tuple[str, str, Operation, ResourceType], bool] = {}
        self._families: dict[tuple[str, str, Operation, ResourceType], NameFamilies] = {}

    def replace(self, acls: Mapping[str, AclBinding]) -> None:
        """Replace the rules. They are given by id; the rule of an id never changes."""
        before, self._acls = self._acls, acls
        for acl_id in before.keys() - acls.keys():
            self._index.remove(before[acl_id])
        for acl_id in acls.keys() - before.keys():
            self._index.add(acls[acl_id])
        self._decisions.clear()
        self._some.clear()
        self._families.clear()

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """True if the operation is allowed. On the hot path."""
        known = self._decisions.get((principal, host, operation, kind, name))
        return self._decide(principal, host, operation, kind, name) if known is None else known

    def _decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if principal in self.super_users:
            allowed = True
        else:
            by_rules = self._index.decide(principal, host, operation, kind, name)
            allowed = self.allow_if_no_acl if by_rules is None else by_rules
        if len(name) <= _NAME_LENGTH_KEPT:
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[(principal, host, operation, kind, name)] = allowed
        return allowed

    def deciding(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> AclBinding | None:
        """The rule that denies or allows the operation, for people who ask why."""
        return self._index.deciding(principal, host, operation, kind, name)

    def allows_some(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """True if the operation is allowed with at least one resource of the type."""
        if principal in self.super_users:
            return True
        key = (principal, host, operation, kind)
        if key not in self._some:
            if len(self._some) >= _DECISIONS_MAX:
                self._some.clear()
            by_rules = self._index.allows_some(principal, host, operation, kind)
            self._some[key] = self.allow_if_no_acl if by_rules is None else by_rules
        return self._some[key]

    def allows_all_with(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, prefix: str
    ) -> bool:
        """True if the operation is allowed with every resource whose name begins with this prefix."""
        if principal in self.super_users:
            return True
        key = (principal, host, operation, kind)
        families = self._families.get(key)
        if families is None:
            if len(self._families) >= _FAMILIES_MAX:
                self._families.clear()
            families = self._families[key] = self._index.families(principal, host, operation, kind)
        return families.allows_all_with(prefix)

    def operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """The bit field of the operations that are allowed with a resource."""
        return operations_where(kind, lambda operation: self.allows(principal, host, operation, kind, name))
