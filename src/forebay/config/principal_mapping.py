"""`ssl.principal.mapping.rules`: from the name in a client's certificate to a user.

    RULE:^CN=(.*?),OU=Services.*$/$1/L, RULE:^CN=(\\w+)$/service-$1/, DEFAULT

The first rule whose pattern matches the whole name gives the user. `$1` is the match of the first group; L
and U convert it to lower and upper case. DEFAULT takes the whole name. A slash is written `\\/`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from forebay.config.values import Value
from forebay.lazy import dataclass

_DEFAULT = "DEFAULT"
_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"RULE:{_PART}/{_PART}/([LU]?)")
_REFERENCE = re.compile(r"\$(\d)|\\(.)", re.DOTALL)
_NAME_CHARACTERS_MAX = 4096
"""The maximum for a name in a certificate. Longer ones are refused."""


@dataclass(frozen=True, slots=True)
class Rule:
    pattern: Any
    """Compiled; None for DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        user = _REFERENCE.sub(lambda part: _expanded(part, found), self.replacement)
        return {"L": user.lower(), "U": user.upper()}.get(self.case, user)


def _expanded(part: re.Match[str], found: Any) -> str:
    return (found.group(int(part[1])) or "") if part[1] else part[2]


@cache
def parse_rules(text: str) -> tuple[Rule, ...]:
    """Raises ValueError with the correct form of a rule."""
    rules: list[Rule] = []
    rest = text.strip()
    while rest:
        if rest.startswith(_DEFAULT):
            rules.append(Rule(None))
            rest = rest.removeprefix(_DEFAULT)
        else:
            found = _RULE.match(rest)
            if found is None:
                raise ValueError(f"{rest!r} is not a rule, write DEFAULT or RULE:pattern/replacement/")
            rules.append(_rule(*found.groups()))
            rest = rest[found.end() :]
        rest = rest.lstrip(" \t")
        if rest and rest[0] not in ",\n":
            raise ValueError(f"a comma is missing before {rest!r}")
        rest = rest[1:].strip()
    return tuple(rules)


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    import re2  # linear in the length of the name, whatever the pattern

    try:
        compiled = re2.compile(pattern.replace("\\/", "/"))
    except re2.error as error:
        raise ValueError(f"{pattern!r} is not a pattern: {error}") from None
    for part in _REFERENCE.finditer(replacement):
        if part[1] and int(part[1]) > compiled.groups:
            raise ValueError(f"{replacement!r} names ${part[1]}, which {pattern!r} does not have")
    return Rule(compiled, replacement, case)


def validate_rules(value: Value) -> None:
    parse_rules(str(value))


def user_of(rules: tuple[Rule, ...], name: str) -> str | None:
    """The user for the name in a certificate; None if no rule matches."""
    if len(name) > _NAME_CHARACTERS_MAX:
        return None
    for rule in rules:
        user = rule.apply(name)
        if user is not None:
            return user
    return None
