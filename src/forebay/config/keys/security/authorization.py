"""The settings of authorization, with Kafka's names. Give every broker of a cluster the same."""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.names import trimmed
from forebay.config.values import Value, bool_key, double_key, int_key, text_key

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_IF_NO_ACL = "allow.everyone.if.no.acl.found"
_NAMES = ("", "acl", STANDARD_AUTHORIZER)


def _validate_authorizer(value: Value) -> None:
    if value not in _NAMES:
        raise ValueError(f"{value!r} is not known here, use {STANDARD_AUTHORIZER} or acl, or leave it empty")


def _validate_super_users(value: Value) -> None:
    parse_principals(str(value))


def parse_principals(text: str) -> frozenset[str]:
    """Principals are separated by semicolons, because names in certificates contain commas."""
    found: set[str] = set()
    for part in text.split(";"):
        kind, _, name = (trimmed(each) for each in part.partition(":"))
        if kind and name:
            found.add(f"{kind}:{name}")
        elif part.strip():
            raise ValueError(f"{part.strip()!r} is no principal, use User:ada;User:broker")
    return frozenset(found)


@settings_group
class AuthorizationConfig:
    authorizer: str = text_key(
        AUTHORIZER,
        "",
        f"Whether ACLs decide who may do what: {STANDARD_AUTHORIZER}, or acl for short. Empty: everybody"
        " may do everything, and there are no ACLs.",
        validate=_validate_authorizer,
    )
    super_users_text: str = text_key(
        SUPER_USERS,
        "",
        "Principals that may do everything, such as User:admin;User:broker. The brokers' own has to be among"
        " them, or to have an ACL that allows ClusterAction.",
        validate=_validate_super_users,
    )
    allow_if_no_acl: bool = bool_key(
        ALLOW_IF_NO_ACL,
        False,
        "Whether everybody may do everything with a resource that no ACL is about.",
    )

    audit_per_second: float = double_key(
        "forebay.audit.refusals.per.second",
        5.0,
        "Lines of the audit log each second about what one principal at one address was refused; four times "
        "as many for a principal at all its addresses. Others are counted.",
        0,
        dynamic=True,
    )
    audit_burst: int = int_key(
        "forebay.audit.refusals.burst",
        50,
        "How many of them may be written at once.",
        1,
        100_000,
        dynamic=True,
    )
    audit_field_chars_max: int = int_key(
        "forebay.audit.field.chars.max",
        256,
        "The longest client id, principal or name in a line of the audit log. What is cut off is marked.",
        16,
        32_767,
        dynamic=True,
    )
    audit_senders_max: int = int_key(
        "forebay.audit.senders.max",
        1_000,
        "Principals at addresses whose refusals are counted apart from those of others.",
        1,
        1_000_000,
        dynamic=True,
    )

    @property
    def is_enabled(self) -> bool:
        return bool(self.authorizer)

    @property
    def super_users(self) -> frozenset[str]:
        return parse_principals(self.super_users_text)
