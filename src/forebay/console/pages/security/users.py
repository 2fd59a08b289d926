"""Users that log in by SCRAM or PLAIN: list, add, give a new password, delete."""

from __future__ import annotations

from typing import Any

from forebay.console.web.asking import Ask, Change, WrongInput, body_text
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.operations.security.users import ThroughBroker
from forebay.wire.sasl.scram import BY_NAME, ITERATIONS_DEFAULT

PAGE = Page()


@PAGE.get("/users")
def users(ask: Ask) -> dict[str, Any]:
    found = ThroughBroker(ask.cluster.client).credentials()
    return page_of(
        ask,
        list(found.items()),
        name=lambda each: each[0],
        columns={"name": lambda each: each[0]},
        default="name",
        show=lambda each: {"name": each[0], "mechanisms": dict(sorted(each[1].items()))},
    )


@PAGE.change("/users/add")
def add(ask: Ask) -> Change:
    """The body: name and password. A user that exists gets the new password."""
    name = body_text(ask, "name").strip()
    password = body_text(ask, "password")
    if name.startswith("User:"):
        raise WrongInput("a name without User:, which belongs to principals", "name")
    return Change(
        question=f"Let {name} log in with this password?",
        details=["If the user exists, the password before is no longer valid."],
        done=f"added user {name}",
        command=["user", "add", name],
        act=lambda: ThroughBroker(ask.cluster.client).put(name, list(BY_NAME), password, ITERATIONS_DEFAULT),
    )


@PAGE.change("/users/{name}/delete")
def delete(ask: Ask) -> Change:
    name = ask.path["name"]
    store = ThroughBroker(ask.cluster.client)

    def act() -> None:
        mechanisms = list(store.credentials().get(name, ()))
        if not mechanisms:
            raise WrongInput(f"there is no user {name}", "name")
        store.delete(name, mechanisms)

    return Change(
        question=f"Delete user {name}?",
        details=["Delegation tokens of the user go too.", "Connections that are open stay."],
        done=f"deleted user {name}",
        command=["user", "delete", name, "--yes"],
        act=act,
        danger=True,
        name=name,
    )
