"""`forebay user add|list|delete`: through a broker, or with --offline straight in the store.

If all brokers of a cluster require a login, its first user can only be created offline.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Protocol

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.deletion import confirm
from forebay.cli.output import json_option, print_json, print_table
from forebay.wire.sasl.scram import BY_NAME, ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN

_GENERATED_BYTES = 18


class UserStore(Protocol):
    """The interface for changing users: `ThroughBroker` or `StoredUsers`."""

    def credentials(self) -> Mapping[str, Mapping[str, int]]:
        """The mechanisms of each user, with their iterations."""

    def put(self, name: str, mechanisms: Sequence[str], password: str, iterations: int) -> None: ...
    def delete(self, name: str, mechanisms: Sequence[str]) -> None: ...


@click.group()
def user() -> None:
    """Add, list and delete the users that may log in by SCRAM or PLAIN."""


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where users are changed; the command gets a `users`."""

    @client_options
    @click.option(
        "--offline",
        is_flag=True,
        help="Without a broker, straight in the store: etcd, or the data directory of a stopped broker.",
    )
    @click.option("--data", metavar="DIR", help="With --offline: the data directory (log.dirs).")
    @click.option("--cluster", metavar="URL", help="With --offline: the cluster (forebay.cluster).")
    @click.option(
        "--config",
        "file",
        metavar="FILE.toml",
        type=click.Path(dir_okay=False, path_type=Path),
        help="With --offline: the broker's settings from its file.",
    )
    @wraps(command)
    def with_users(
        *arguments: Any,
        client: Client,
        offline: bool,
        data: str | None,
        cluster: str | None,
        file: Path | None,
        **options: Any,
    ) -> Any:
        if not offline and (data or cluster or file):
            raise click.UsageError("--data, --cluster and --config say where the store is: add --offline")
        return command(*arguments, users=_users(client, offline, data, cluster, file), **options)

    return with_users


def _users(
    client: Client, offline: bool, data: str | None, cluster: str | None, file: Path | None
) -> UserStore:
    if not offline:
        from forebay.operations.security.users import ThroughBroker

        return ThroughBroker(client)
    from forebay.config import load
    from forebay.local.stored_users import StoredUsers

    flags = {"log.dirs": data, "forebay.cluster": cluster}
    given = [f"{key}={text}" for key, text in flags.items() if text is not None]
    return StoredUsers(load(file, os.environ, given))


mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(BY_NAME)),
    multiple=True,
    help="Only this one; may be repeated. [default: all]",
)


@user.command(name="add")
@click.argument("name")
@mechanism_option
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.File(encoding="utf-8"),
    help="The password is the first line of this file; - is standard input.",
)
@click.option("--generate", is_flag=True, help="Make up a password, and print it.")
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_DEFAULT,
    show_default=True,
    help="How slow it is to guess the password.",
)
@place_options
def add(
    name: str,
    mechanisms: tuple[str, ...],
    password_file: Any,
    generate: bool,
    iterations: int,
    users: UserStore,
) -> None:
    """Add user NAME, or give it a new password.

    Without --password-file or --generate the password is asked for.
    """
    password = _password(password_file, generate)
    users.put(name, mechanisms or list(BY_NAME), password, iterations)
    click.echo(f"added user {name}", err=generate)
    if generate:
        click.echo(password)


@user.command(name="list")
@json_option
@place_options
def list_(as_json: bool, users: UserStore) -> None:
    """Show the users, and how each may log in."""
    found = users.credentials()
    if as_json:
        print_json([{"user": name, "mechanisms": dict(found[name])} for name in sorted(found)])
    else:
        rows = [
            (name, mechanism, iterations)
            for name in sorted(found)
            for mechanism, iterations in sorted(found[name].items())
        ]
        print_table(("USER", "MECHANISM", "ITERATIONS"), rows)


@user.command(name="delete")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@mechanism_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@place_options
def delete(names: tuple[str, ...], mechanisms: tuple[str, ...], yes: bool, users: UserStore) -> None:
    """Delete users and their delegation tokens: they cannot log in again.

    Connections that are open stay, but for those that have logged in with a token.
    """
    if not yes:
        confirm(names, "what they log in by")
    found, problems = users.credentials(), []
    for name in names:
        going = [each for each in found.get(name, ()) if not mechanisms or each in mechanisms]
        if not going:
            problems.append(f"there is no user {name}{' with that mechanism' if mechanisms else ''}")
            continue
        users.delete(name, going)
        click.echo(f"deleted user {name}")
    if problems:
        raise CommandError("\n".join((*problems, "`forebay user list` shows who there is")))


def _password(file: Any, generate: bool) -> str:
    if generate:
        if file is not None:
            raise click.UsageError("--generate makes up a password: leave out --password-file")
        return secrets.token_urlsafe(_GENERATED_BYTES)
    if file is not None:
        password = file.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        raise click.UsageError("no password: use --password-file FILE, - for standard input, or --generate")
    if not password:
        raise click.UsageError("the password is empty")
    return str(password)
