"""Client quotas: what users, client ids and addresses may use at most."""

from __future__ import annotations

from typing import Any

from forebay.console.web.asking import Ask, Change, WrongInput, body_text
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.core.quotas.entities import EntityType, QuotaEntity, read_entity
from forebay.core.quotas.keys import QuotaKey, QuotaOp, altered
from forebay.errors import KafkaError
from forebay.operations.quota_admin import QuotaAdmin

PAGE = Page()


@PAGE.get("/quotas")
def quotas(ask: Ask) -> dict[str, Any]:
    found = QuotaAdmin(ask.cluster.client).describe()
    return page_of(
        ask,
        [(entity, key, value) for entity, values in found for key, value in values.items()],
        name=lambda each: f"{each[0]} {each[1]}",
        columns={"entity": lambda each: str(each[0]), "key": lambda each: each[1]},
        default="entity",
        show=lambda each: {
            "entity": str(each[0]),
            "parts": {str(kind): name for kind, name in each[0].parts},
            "key": each[1],
            "value": each[2],
        },
    )


@PAGE.get("/quotas/keys")
def keys(_ask: Ask) -> list[str]:
    return [str(key) for key in QuotaKey]


@PAGE.change("/quotas/set")
def put(ask: Ask) -> Change:
    """The body: parts (type to name, null for the default), key and value."""
    entity, key = _entity(ask), body_text(ask, "key")
    value = _number(ask)
    ops = [QuotaOp(key, value)]
    try:
        altered(entity, {}, ops)
    except KafkaError as error:
        raise WrongInput(error.message, "value") from None
    return Change(
        question=f"Limit {key} of {entity} to {_text(value)}?",
        details=["It counts at each broker by itself."],
        done=f"set quota of {entity}: {key}={_text(value)}",
        command=["quota", "set", f"{key}={_text(value)}", *_options(entity)],
        act=lambda: QuotaAdmin(ask.cluster.client).alter(entity, ops),
    )


@PAGE.change("/quotas/delete")
def delete(ask: Ask) -> Change:
    entity, key = _entity(ask), body_text(ask, "key")
    return Change(
        question=f"Delete the quota {key} of {entity}?",
        details=["The next less specific quota counts then, if there is one."],
        done=f"deleted quota of {entity}: {key}",
        command=["quota", "delete", key, *_options(entity)],
        act=lambda: QuotaAdmin(ask.cluster.client).alter(entity, [QuotaOp(key, None)]),
    )


def _entity(ask: Ask) -> QuotaEntity:
    parts = ask.body.get("parts")
    if not isinstance(parts, dict) or not parts:
        raise WrongInput("whose quota? Give a user, a client id or an address", "parts")
    named = [(str(kind), None if name is None else str(name).strip()) for kind, name in parts.items()]
    try:
        return read_entity(named)
    except KafkaError as error:
        raise WrongInput(error.message, "parts") from None


def _number(ask: Ask) -> float:
    text = str(ask.body.get("value", "")).strip()
    try:
        return float(text)
    except ValueError:
        raise WrongInput(f"{text!r} is no number", "value") from None


def _text(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _options(entity: QuotaEntity) -> list[str]:
    """The entity as options of `forebay quota`."""
    defaults = {EntityType.USER: "user", EntityType.CLIENT_ID: "client", EntityType.IP: "ip"}
    found: list[str] = []
    for kind, name in entity.parts:
        found += [f"--{defaults[kind]}-defaults"] if name is None else [f"--{kind}", name]
    return found
