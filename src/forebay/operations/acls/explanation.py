"""Explains if a principal may do something, as the brokers decide it.

The decision is made here, by the same code as in brokers, from the rules and settings of a broker.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.config.keys.security.authorization import (
    ALLOW_IF_NO_ACL,
    AUTHORIZER,
    SUPER_USERS,
    parse_principals,
)
from forebay.core.acls.authorizer import Authorizer
from forebay.core.acls.bindings import Operation, PatternType, ResourceType
from forebay.core.acls.filters import AclFilter
from forebay.core.acls.text import acl_id
from forebay.operations.acls.acl_admin import AclAdmin
from forebay.operations.client import METADATA_SECONDS, CommandError
from forebay.operations.settings import read_configs


class Answer(NamedTuple):
    allowed: bool
    because: str


def explain(
    admin: AclAdmin, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> Answer:
    settings = _settings(admin)
    if not settings[AUTHORIZER]:
        return Answer(True, f"there is no authorizer: everybody may do everything; set {AUTHORIZER}")
    super_users = parse_principals(settings[SUPER_USERS])
    if principal in super_users:
        return Answer(True, f"{principal} is one of {SUPER_USERS}")
    about = admin.acls.describe(AclFilter(resource_type=kind, name=name, pattern=PatternType.MATCH))
    is_open = settings[ALLOW_IF_NO_ACL] == "true"
    authorizer = Authorizer(allow_if_no_acl=is_open)
    authorizer.replace({acl_id(acl): acl for acl in about})
    asked = (principal, host, operation, kind, name)
    allowed, rule = authorizer.allows(*asked), authorizer.deciding(*asked)
    if rule is not None:
        return Answer(allowed, str(rule))
    if about:
        return Answer(allowed, f"there are rules for it, and none of them allows it from {host}")
    return Answer(allowed, f"there is no rule for it, and {ALLOW_IF_NO_ACL}={settings[ALLOW_IF_NO_ACL]}")


def _settings(admin: AclAdmin) -> dict[str, str]:
    """The settings of any broker: all should have the same."""
    brokers = admin.admin.list_topics(timeout=METADATA_SECONDS).brokers
    if not brokers:
        raise CommandError("no broker is known; try again")
    entries = read_configs(admin.admin, "broker", str(min(brokers)))
    return {entry["name"]: entry["value"] or "" for entry in entries}
