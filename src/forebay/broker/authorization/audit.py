"""The audit log: who did what, from where, and with what result, in lines of the logger `forebay.audit`.

Refusals are warnings, of which the log leaves out what repeats itself too fast. Administrative requests are
logged whatever becomes of them. Lines name resources and settings, never values, messages or credentials.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from forebay.broker.net.dispatch import RequestContext
from forebay.core.guards.guard import Resource
from forebay.errors import known_code
from forebay.wire.fields import Struct
from forebay.wire.messages import api_name

log = logging.getLogger("forebay.audit")

_NAMED_MAX = 20
"""Resources named in one line."""
_NAMES = (
    "name",
    "topic",
    "topic_name",
    "resource_name",
    "resource_name_filter",
    "group_id",
    "principal",
    "principal_filter",
    "broker_id",
    "feature",
    "path",
    "entity_type",
    "entity_name",
)
"""The fields of requests that say what they are about, where there are several: the first of them."""


def log_refusal(context: RequestContext, refused: Iterable[Resource]) -> None:
    shown = [str(resource) for resource in refused]
    log.warning(
        "a request was refused", extra=_about(context) | {"needs": _joined(shown), "result": "DENIED"}
    )


def log_administration(context: RequestContext, request: Any, response: Any) -> None:
    codes = Counter(_codes(response))
    result = ", ".join(
        known_code(code).name if count == 1 else f"{count} {known_code(code).name}"
        for code, count in sorted(codes.items())
    )
    facts = {"what": _joined(list(dict.fromkeys(_named(request)))), "result": result or "NONE"}
    log.info("an administrative request was answered", extra=_about(context) | facts)


def _about(context: RequestContext) -> dict[str, object]:
    connection = context.connection
    host, port = connection.peer
    return {
        "principal": connection.principal,
        "client": f"{host}:{port}",
        "client_id": context.client_id or "",
        "api": api_name(context.api_key),
    }


def _joined(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    shown = ", ".join(name[:300] for name in names[:_NAMED_MAX])
    return f"{shown} and {more} more" if more > 0 else shown


def _named(value: Any) -> Iterator[str]:
    """The names in a request of what it is about, with the settings that it alters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _named(item)
    elif isinstance(value, Struct):
        own = [str(getattr(value, name)) for name in _NAMES if getattr(value, name, None) not in (None, "")]
        if own:
            configs = [config.name for config in getattr(value, "configs", None) or ()]
            yield " ".join(own) + (f" ({', '.join(configs)})" if configs else "")
            return
        for field in value.FIELDS:
            inner = getattr(value, field)
            if isinstance(inner, list):
                yield from _named(inner)


def _codes(value: Any) -> Iterator[int]:
    """Every error code in a response: of items if there are any, else of the whole."""
    if isinstance(value, list):
        for item in value:
            yield from _codes(item)
    elif isinstance(value, Struct):
        own = getattr(value, "error_code", None)
        inner = [code for field in value.FIELDS for code in _codes_within(getattr(value, field))]
        if own or (own is not None and not inner):
            yield int(own)
        yield from inner


def _codes_within(value: Any) -> Iterator[int]:
    if isinstance(value, list) and value and isinstance(value[0], Struct):
        yield from _codes(value)
