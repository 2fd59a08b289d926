"""`forebay token create|list|renew|expire`."""

from __future__ import annotations

import sys
from base64 import b64encode
from typing import Any

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.durations import Duration
from forebay.cli.output import json_option, print_json, print_table
from forebay.operations.local_time import local_time
from forebay.operations.security.token_admin import TokenAdmin, user_name


@click.group()
def token() -> None:
    """Create, list, renew and expire delegation tokens: logins for a while.

    A token is a name and a secret for SCRAM. A job that has one acts as its owner, without the password.
    """


@token.command()
@click.option("--owner", metavar="USER", help="For this user. [default: yourself]")
@click.option(
    "--renewer", "renewers", metavar="USER", multiple=True, help="Who may renew it, too; may be repeated."
)
@click.option(
    "--lifetime",
    metavar="TIME",
    type=Duration(),
    default=-1,
    help="Not renewable beyond this age, such as 12h. [default: delegation.token.max.lifetime.ms]",
)
@json_option
@client_options
def create(
    owner: str | None, renewers: tuple[str, ...], lifetime: int, as_json: bool, client: Client
) -> None:
    """Create a token. Its secret is shown now, and may never be shown again."""
    with TokenAdmin(client) as admin:
        made = admin.create(owner, renewers, lifetime)
    facts = {
        "token": made.token_id,
        "secret": b64encode(made.hmac).decode(),
        "owner": f"{made.principal_type}:{made.principal_name}",
        "expires_ms": made.expiry_timestamp_ms,
        "renewable_until_ms": made.max_timestamp_ms,
    }
    if as_json:
        print_json(facts)
        return
    until = (local_time(made.expiry_timestamp_ms), local_time(made.max_timestamp_ms))
    rows = [("sasl.username", facts["token"]), ("sasl.password", facts["secret"]), ("owner", facts["owner"])]
    print_table(("SETTING", "VALUE"), [*rows, ("expires", until[0]), ("renewable until", until[1])])


@token.command(name="list")
@click.option("--owner", "owners", metavar="USER", multiple=True, help="Of this user; may be repeated.")
@json_option
@client_options
def list_(owners: tuple[str, ...], as_json: bool, client: Client) -> None:
    """List the tokens that you own, have created or may renew, and others that you may describe."""
    with TokenAdmin(client) as admin:
        found = admin.describe(owners)
    if as_json:
        print_json([_facts(each) for each in found])
        return
    rows = [
        (
            each.token_id,
            f"{each.principal_type}:{each.principal_name}",
            f"{each.token_requester_principal_type}:{each.token_requester_principal_name}",
            ",".join(renewer.principal_name for renewer in each.renewers) or None,
            local_time(each.expiry_timestamp),
            local_time(each.max_timestamp),
        )
        for each in found
    ]
    print_table(("TOKEN", "OWNER", "CREATED BY", "RENEWERS", "EXPIRES", "RENEWABLE UNTIL"), rows)


def _facts(each: Any) -> dict[str, object]:
    return {
        "token": each.token_id,
        "owner": f"{each.principal_type}:{each.principal_name}",
        "requester": f"{each.token_requester_principal_type}:{each.token_requester_principal_name}",
        "renewers": [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in each.renewers],
        "issued_ms": each.issue_timestamp,
        "expires_ms": each.expiry_timestamp,
        "renewable_until_ms": each.max_timestamp,
    }


@token.command()
@click.argument("token_id", metavar="TOKEN")
@click.option(
    "--for",
    "period_ms",
    metavar="TIME",
    type=Duration(),
    default=-1,
    help="It expires that much later than now. [default: delegation.token.expiry.time.ms]",
)
@client_options
def renew(token_id: str, period_ms: int, client: Client) -> None:
    """Renew TOKEN, which is given by its id or its secret."""
    with TokenAdmin(client) as admin:
        expires_ms = admin.renew(token_id, period_ms)
    click.echo(f"it expires at {local_time(expires_ms)}")


@token.command()
@click.argument("token_ids", metavar="[TOKEN]...", nargs=-1)
@click.option("--owner", metavar="USER", help="All tokens of this user.")
@click.option(
    "--in", "period_ms", metavar="TIME", type=Duration(), default=-1, help="After this time. [default: now]"
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def expire(token_ids: tuple[str, ...], owner: str | None, period_ms: int, yes: bool, client: Client) -> None:
    """Let tokens end: at once, with the connections that use them, unless --in says when.

    Whoever may alter the cluster may end the tokens of others.
    """
    if bool(token_ids) == (owner is not None):
        raise click.UsageError("which tokens? Give their ids or secrets, or --owner")
    with TokenAdmin(client) as admin:
        if owner is not None:
            name = user_name(owner)
            token_ids = tuple(each.token_id for each in admin.describe([name]) if each.principal_name == name)
        if not yes:
            _confirm(len(token_ids))
        problems = []
        for number, each in enumerate(token_ids, 1):
            try:
                ends_ms = admin.expire(each, period_ms)
                click.echo(f"{_shown(each, number)} ends at {local_time(ends_ms)}")
            except CommandError as error:
                problems.append(f"{_shown(each, number)}: {error}")
    if problems:
        raise CommandError("\n".join(problems))


def _confirm(count: int) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("to end tokens needs --yes when nobody can be asked")
    click.confirm(f"End {count} token{'' if count == 1 else 's'}?", abort=True)


def _shown(given: str, number: int) -> str:
    """A secret is not printed."""
    return given if len(given) < 30 else f"token {number}"
