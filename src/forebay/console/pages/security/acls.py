"""Access rules: who may do what; adding, deleting, and asking why somebody may or may not do something."""

from __future__ import annotations

from typing import Any

from forebay.console.web.asking import Ask, Change, WrongInput, body_text
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.core.acls.bindings import WILDCARD, AclBinding, check_names
from forebay.core.acls.filters import AclFilter
from forebay.errors import KafkaError
from forebay.operations.acls.acl_admin import AclAdmin
from forebay.operations.acls.explanation import explain
from forebay.operations.acls.rules import (
    RESOURCES,
    WrongRule,
    exactly,
    facts_of,
    operations_of,
    read_operations,
    resource_name,
    rules_of,
)

PAGE = Page()


@PAGE.get("/acls")
def acls(ask: Ask) -> dict[str, Any]:
    """A search looks at everything that a rule says."""
    found = [facts_of(each) for each in AclAdmin(ask.cluster.client).acls.describe(AclFilter())]
    return page_of(
        ask,
        found,
        name=lambda each: " ".join(each.values()),
        columns={
            "principal": lambda each: each["principal"],
            "permission": lambda each: each["permission"],
            "operation": lambda each: each["operation"],
            "resource": lambda each: (each["resource"], each["name"]),
        },
        default="principal",
        show=dict,
    )


@PAGE.get("/acls/words")
def words(_ask: Ask) -> dict[str, Any]:
    """The kinds of resources, with the operations of each."""
    return {word: operations_of(kind) for word, kind in RESOURCES.items()}


@PAGE.get("/acls/test")
def test(ask: Ask) -> dict[str, Any]:
    """Tells if a principal may do something, and by which rule."""
    resource = ask.text("resource", "topic")
    if resource not in RESOURCES:
        raise WrongInput(f"there is no resource {resource}: use {', '.join(RESOURCES)}", "resource")
    kind, name = RESOURCES[resource], ask.text("name") or None
    try:
        operations = read_operations(ask.text("operation", "read"))
        found = explain(
            AclAdmin(ask.cluster.client),
            _principal(ask.text("principal")),
            ask.text("host") or "127.0.0.1",
            operations[0],
            kind,
            resource_name(kind, name),
        )
    except WrongRule as error:
        raise WrongInput(str(error), "name") from None
    return {"allowed": found.allowed, "because": found.because}


@PAGE.change("/acls/add")
def add(ask: Ask) -> Change:
    rules = _rules(ask)
    try:
        check_names(rules[0])
    except KafkaError as error:
        raise WrongInput(error.message, "name") from None
    return Change(
        question="Add this rule?" if len(rules) == 1 else f"Add these {len(rules)} rules?",
        details=[str(each) for each in rules],
        done="added: " + "; ".join(str(each) for each in rules),
        command=["acl", "add", *_words(ask, rules)],
        act=lambda: AclAdmin(ask.cluster.client).acls.create(rules),
    )


@PAGE.change("/acls/delete")
def delete(ask: Ask) -> Change:
    rules = _rules(ask)

    def act() -> None:
        gone = AclAdmin(ask.cluster.client).acls.delete([exactly(each) for each in rules])
        if not gone:
            raise WrongInput("there is no such rule any more")

    return Change(
        question="Delete this rule?",
        details=[str(each) for each in rules],
        done="deleted: " + "; ".join(str(each) for each in rules),
        command=["acl", "delete", *_words(ask, rules)],
        act=act,
    )


def _principal(text: str) -> str:
    """A name alone is that of a user."""
    text = text.strip()
    if not text:
        raise WrongInput("whose? Give a user, such as ada, or User:* for everybody", "principal")
    return text if ":" in text else f"User:{text}"


def _rules(ask: Ask) -> list[AclBinding]:
    resource = body_text(ask, "resource")
    if resource not in RESOURCES:
        raise WrongInput(f"there is no resource {resource}: use {', '.join(RESOURCES)}", "resource")
    name = body_text(ask, "name", required=False).strip() or None
    try:
        return rules_of(
            _principal(body_text(ask, "principal")),
            read_operations(body_text(ask, "operations")),
            resource,
            name,
            deny=ask.body.get("deny") is True,
            prefix=ask.body.get("prefix") is True,
            host=body_text(ask, "host", required=False).strip() or WILDCARD,
        )
    except WrongRule as error:
        raise WrongInput(str(error), "name") from None


def _words(ask: Ask, rules: list[AclBinding]) -> list[str]:
    """The rules as arguments of `forebay acl add` and `delete`."""
    facts = [facts_of(each) for each in rules]
    one = facts[0]
    found = [one["principal"], ",".join(each["operation"] for each in facts), one["resource"]]
    if one["resource"] != "cluster":
        found.append(one["name"])
    if ask.body.get("prefix") is True:
        found.append("--prefix")
    if ask.body.get("deny") is True:
        found.append("--deny")
    if one["host"] != WILDCARD:
        found += ["--host", one["host"]]
    return found
