"""`forebay acl add|list|delete|test`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.output import json_option, print_json, print_table
from forebay.core.acls.bindings import (
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    ResourceType,
    check_names,
)
from forebay.core.acls.filters import AclFilter
from forebay.errors import KafkaError
from forebay.operations.acls.acl_admin import AclAdmin
from forebay.operations.acls.explanation import explain
from forebay.operations.acls.rules import (
    RESOURCES,
    WrongRule,
    exactly,
    facts_of,
    read_operations,
    resource_name,
    rules_of,
)


@click.group()
def acl() -> None:
    """Say who may do what with which topics, groups and transactional ids, with the cluster, and with tokens.

    A rule allows or denies a principal, such as User:ada, an operation. What is denied is denied, whatever
    else is allowed; what no rule allows is denied too. The broker needs authorizer.class.name.
    """


def _operations(_ctx: click.Context, _parameter: click.Parameter, value: str) -> list[Operation]:
    try:
        return read_operations(value)
    except WrongRule as error:
        raise click.BadParameter(str(error)) from None


def _rule_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--host", default=WILDCARD, metavar="IP", help="From there only; also 10.0.0.0/8."),
        click.option("--prefix", is_flag=True, help="All whose names begin with NAME."),
        click.option("--deny", is_flag=True, help="Deny it, instead of allowing it."),
        click.argument("name", required=False),
        click.argument("resource", type=click.Choice(list(RESOURCES))),
        click.argument("operations", metavar="OPERATION[,OPERATION]...", callback=_operations),
        click.argument("principal"),
    ):
        command = option(command)
    return command


def _rules(
    principal: str,
    operations: list[Operation],
    resource: str,
    name: str | None,
    *,
    deny: bool,
    prefix: bool,
    host: str,
) -> list[AclBinding]:
    """The rules in a command line; click reports invalid ones."""
    try:
        return rules_of(principal, operations, resource, name, deny=deny, prefix=prefix, host=host)
    except WrongRule as error:
        raise click.UsageError(str(error)) from None


def _named(kind: ResourceType, name: str | None) -> str:
    try:
        return resource_name(kind, name)
    except WrongRule as error:
        raise click.UsageError(str(error)) from None


@acl.command()
@_rule_arguments
@client_options
def add(
    principal: str,
    operations: list[Operation],
    resource: str,
    name: str | None,
    deny: bool,
    prefix: bool,
    host: str,
    client: Client,
) -> None:
    """Allow PRINCIPAL operations on a RESOURCE, or deny them. User:* means everybody.

    \b
      forebay acl add User:ada read,write topic orders
      forebay acl add User:ada read group billing
      forebay acl add User:etl all topic etl- --prefix
      forebay acl add User:broker cluster-action cluster
      forebay acl add 'User:*' write topic audit --deny
      forebay acl add User:scheduler create-tokens user User:ada
    """
    rules = _rules(principal, operations, resource, name, deny=deny, prefix=prefix, host=host)
    try:
        check_names(rules[0])
    except KafkaError as error:
        raise click.UsageError(error.message) from None
    AclAdmin(client).acls.create(rules)
    for each in rules:
        click.echo(str(each))


@acl.command(name="list")
@click.option("--principal", metavar="User:NAME", help="Rules for this principal only.")
@click.option("--resource", type=click.Choice(list(RESOURCES)), help="Rules for this kind of resource only.")
@click.option("--name", help="Rules that would apply to the resource of this name, prefixes and * included.")
@json_option
@client_options
def list_(
    principal: str | None, resource: str | None, name: str | None, as_json: bool, client: Client
) -> None:
    """List the rules."""
    found = AclAdmin(client).acls.describe(_filter(principal, resource, name))
    if as_json:
        print_json([facts_of(each) for each in found])
        return
    rows = [tuple(facts_of(each).values()) for each in found]
    print_table(("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"), rows)


def _filter(principal: str | None, resource: str | None, name: str | None) -> AclFilter:
    return AclFilter(
        resource_type=ResourceType.ANY if resource is None else RESOURCES[resource],
        name=name,
        pattern=PatternType.ANY if name is None else PatternType.MATCH,
        principal=principal,
    )


@acl.command()
@_rule_arguments
@client_options
def delete(
    principal: str,
    operations: list[Operation],
    resource: str,
    name: str | None,
    deny: bool,
    prefix: bool,
    host: str,
    client: Client,
) -> None:
    """Delete rules, which are written as for `add`.

    \b
      forebay acl delete User:ada write topic orders
    """
    rules = _rules(principal, operations, resource, name, deny=deny, prefix=prefix, host=host)
    deleted = AclAdmin(client).acls.delete([exactly(each) for each in rules])
    for each in deleted:
        click.echo(f"deleted: {each}")
    missing = [each for each in rules if each not in deleted]
    if missing:
        raise CommandError("\n".join(f"there is no such rule: {each}" for each in missing))


@acl.command()
@click.argument("principal")
@click.argument("operations", metavar="OPERATION", callback=_operations)
@click.argument("resource", type=click.Choice(list(RESOURCES)))
@click.argument("name", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="IP", help="Where the client is.")
@json_option
@client_options
@click.pass_context
def test(
    context: click.Context,
    principal: str,
    operations: list[Operation],
    resource: str,
    name: str | None,
    host: str,
    as_json: bool,
    client: Client,
) -> None:
    """Say whether PRINCIPAL may do something, and by which rule. The exit code is 0 if so, and 1 if not.

    \b
      forebay acl test User:ada read topic orders
    """
    kind = RESOURCES[resource]
    if len(operations) != 1 or operations[0] is Operation.ALL:
        raise click.UsageError("ask about one operation at a time")
    answer = explain(AclAdmin(client), principal, host, operations[0], kind, _named(kind, name))
    if as_json:
        print_json({"allowed": answer.allowed, "because": answer.because})
    else:
        click.echo(f"{'yes' if answer.allowed else 'no'}: {answer.because}")
    context.exit(0 if answer.allowed else 1)
