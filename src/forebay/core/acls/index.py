"""All rules, indexed by resource and principal.

A resource is matched by the rules of its own name, by those of `*`, and by those of every prefix of its name.
Names are looked up in a dictionary. So are prefixes: one look-up for each length of a stored prefix, and
there are few lengths. Under each pattern the rules are kept by principal, so a topic with the rules of ten
thousand users costs a user no more than a topic with one rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from forebay.core.acls.bindings import (
    EVERYONE,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from forebay.core.acls.name_families import NameFamilies

_MAPPED = IPv6Network("::ffff:0:0/96")
_READABLE_BY = frozenset(
    {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
)
_ALLOWED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: _READABLE_BY,
    Operation.DESCRIBE_CONFIGS: frozenset(
        {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}
    ),
}
"""Operations that others imply. Only ALLOW rules imply more: denying READ does not deny DESCRIBE."""

Rules = dict[str, dict[AclBinding, None]]
"""The rules of one pattern, by principal."""


class AclIndex:
    def __init__(self, acls: Iterable[AclBinding] = ()) -> None:
        self._patterns: dict[tuple[ResourceType, PatternType, str], Rules] = {}
        self._lengths: dict[ResourceType, Counter[int]] = {kind: Counter() for kind in ResourceType}
        """How many prefixes of each length there are."""
        for acl in acls:
            self.add(acl)

    def add(self, acl: AclBinding) -> None:
        key = (acl.resource_type, acl.pattern, acl.name)
        rules = self._patterns.get(key)
        if rules is None:
            rules = self._patterns[key] = {}
            if acl.pattern is PatternType.PREFIXED:
                self._lengths[acl.resource_type][len(acl.name)] += 1
        rules.setdefault(acl.principal, {})[acl] = None

    def remove(self, acl: AclBinding) -> None:
        key = (acl.resource_type, acl.pattern, acl.name)
        rules = self._patterns[key]
        del rules[acl.principal][acl]
        if not rules[acl.principal]:
            del rules[acl.principal]
        if not rules:
            del self._patterns[key]
            if acl.pattern is PatternType.PREFIXED:
                lengths = self._lengths[acl.resource_type]
                lengths[len(acl.name)] -= 1
                if not lengths[len(acl.name)]:
                    del lengths[len(acl.name)]

    # -- one resource ----------------------------------------------------------------------------------

    def decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool | None:
        """True if the rules allow it, False if they do not; None if no rule applies to the resource."""
        about = list(self._about(kind, name))
        if not about:
            return None
        rules = [acl for each in about for acl in _of(each, principal)]
        if any(_denies(acl, host, operation) for acl in rules):
            return False
        return any(_allows(acl, host, operation) for acl in rules)

    def deciding(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> AclBinding | None:
        """The rule that denies or allows it; None if no rule applies."""
        rules = [acl for each in self._about(kind, name) for acl in _of(each, principal)]
        for concerns in (_denies, _allows):
            for acl in rules:
                if concerns(acl, host, operation):
                    return acl
        return None

    def _about(self, kind: ResourceType, name: str) -> Iterator[Rules]:
        patterns = self._patterns
        for literal in dict.fromkeys((name, WILDCARD)):
            found = patterns.get((kind, PatternType.LITERAL, literal))
            if found is not None:
                yield found
        for length in self._lengths[kind]:
            found = patterns.get((kind, PatternType.PREFIXED, name[:length]))
            if found is not None and length <= len(name):
                yield found

    # -- many resources --------------------------------------------------------------------------------

    def allows_some(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool | None:
        """True if a rule allows the operation for some name, False if it is denied for all; None if neither.

        An ALLOW rule counts unless a DENY rule covers all of its names.
        """
        rules = list(self._of_kind(kind, principal))
        denied = [acl for acl in rules if _denies(acl, host, operation)]
        if any(_is_everything(acl) for acl in denied):
            return False
        allowed = (acl for acl in rules if _allows(acl, host, operation))
        return True if any(not _is_covered(acl, denied) for acl in allowed) else None

    def families(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> NameFamilies:
        """The rules, prepared for questions about all names with a given prefix."""
        rules = list(self._of_kind(kind, principal))
        return NameFamilies(
            allowed=(acl for acl in rules if _allows(acl, host, operation)),
            denied=(acl for acl in rules if _denies(acl, host, operation)),
        )

    def _of_kind(self, kind: ResourceType, principal: str) -> Iterator[AclBinding]:
        for (of_kind, _, _), rules in self._patterns.items():
            if of_kind is kind:
                yield from _of(rules, principal)


def _of(rules: Rules, principal: str) -> Iterator[AclBinding]:
    yield from rules.get(principal, ())
    if principal != EVERYONE:
        yield from rules.get(EVERYONE, ())


def _denies(acl: AclBinding, host: str, operation: Operation) -> bool:
    if acl.permission is not Permission.DENY or acl.operation not in (operation, Operation.ALL):
        return False
    return host_matches(acl.host, host)


def _allows(acl: AclBinding, host: str, operation: Operation) -> bool:
    if acl.permission is not Permission.ALLOW:
        return False
    by = _ALLOWED_BY.get(operation)
    if acl.operation not in ((operation, Operation.ALL) if by is None else by):
        return False
    return host_matches(acl.host, host)


def _is_everything(acl: AclBinding) -> bool:
    return acl.pattern is PatternType.LITERAL and acl.name == WILDCARD


def _is_covered(acl: AclBinding, denied: list[AclBinding]) -> bool:
    """True if DENY rules cover every name that this rule applies to."""
    if _is_everything(acl):
        return False
    if acl.pattern is PatternType.LITERAL and any(deny.name == acl.name for deny in denied):
        return True
    return any(deny.pattern is PatternType.PREFIXED and acl.name.startswith(deny.name) for deny in denied)


def _unmapped(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """The network of a rule, with mapped addresses (::ffff:10.0.0.1) as IPv4, like those of clients."""
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        address = network.network_address.ipv4_mapped
        return IPv4Network((str(address), network.prefixlen - _MAPPED.prefixlen))
    return network


@lru_cache(maxsize=4096)
def host_matches(rule: str, host: str) -> bool:
    """True if a rule for this host applies to a client at this address."""
    if rule in (WILDCARD, host):
        return True
    try:
        address = ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 client of a dual-stack socket
        addresses = (address, mapped) if mapped else (address,)
        network = _unmapped(ip_network(rule))
        return any(each.version == network.version and each in network for each in addresses)
    except ValueError:
        return False
