"""Decides if all names with a prefix are allowed: rules of one principal, prepared for many questions.

A request may name thousands of prefixes, and there may be thousands of rules. Each question takes a few
look-ups, however many rules there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from forebay.core.acls.bindings import WILDCARD, AclBinding, PatternType


class _Patterns:
    """The names and prefixes that some rules apply to."""

    def __init__(self, acls: Iterable[AclBinding]) -> None:
        found = list(acls)
        prefixes = {acl.name for acl in found if acl.pattern is PatternType.PREFIXED}
        self._prefixes = prefixes
        self._lengths = sorted({len(name) for name in prefixes})
        self._is_everything = any(
            acl.pattern is PatternType.LITERAL and acl.name == WILDCARD for acl in found
        )
        self._names = sorted({acl.name for acl in found})

    def cover(self, prefix: str) -> bool:
        """True if one rule applies to all names with this prefix."""
        return self._is_everything or any(
            length <= len(prefix) and prefix[:length] in self._prefixes for length in self._lengths
        )

    def meet(self, prefix: str) -> bool:
        """True if a rule applies to some name with this prefix."""
        names, at = self._names, bisect_left(self._names, prefix)
        return (at < len(names) and names[at].startswith(prefix)) or self.cover(prefix)


class NameFamilies:
    def __init__(self, allowed: Iterable[AclBinding], denied: Iterable[AclBinding]) -> None:
        """The rules that allow one operation to one principal at one host, and those that deny it."""
        self._allowed = _Patterns(allowed)
        self._denied = _Patterns(denied)

    def allows_all_with(self, prefix: str) -> bool:
        return self._allowed.cover(prefix) and not self._denied.meet(prefix)
