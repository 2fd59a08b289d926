"""`forebay quota set|list|delete|show`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import click

from forebay.cli.client import Client, CommandError, client_options, pairs
from forebay.cli.output import json_option, print_json, print_table
from forebay.core.quotas.entities import EntityType, QuotaEntity, read_entity
from forebay.core.quotas.keys import QuotaKey, QuotaOp, altered
from forebay.core.quotas.precedence import Quota, Quotas
from forebay.errors import KafkaError
from forebay.operations.quota_admin import QuotaAdmin, component

_KEYS_OF_CLIENTS = [key for key in QuotaKey if key is not QuotaKey.CONNECTION]


@click.group()
def quota() -> None:
    """Limit what clients may use of each broker: bytes, time, partitions and connections.

    A quota is set for a user, a client id, both, or an IP address; or for all that have none of their own.
    The most specific one counts: `forebay quota show` says which.
    """


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for a quota's entity; the command gets `parts`."""

    @click.option("--user", metavar="NAME", help="A user: ada for the principal User:ada.")
    @click.option("--user-defaults", is_flag=True, help="All users that have no quota of their own.")
    @click.option("--client-id", metavar="ID", help="A client id.")
    @click.option("--client-defaults", is_flag=True, help="All client ids that have none of their own.")
    @click.option("--ip", metavar="IP", help="An IP address.")
    @click.option("--ip-defaults", is_flag=True, help="All addresses that have none of their own.")
    @wraps(command)
    def with_parts(
        *arguments: Any,
        user: str | None,
        user_defaults: bool,
        client_id: str | None,
        client_defaults: bool,
        ip: str | None,
        ip_defaults: bool,
        **options: Any,
    ) -> Any:
        parts: list[tuple[EntityType, str | None]] = []
        for kind, name, is_default in (
            (EntityType.USER, user, user_defaults),
            (EntityType.CLIENT_ID, client_id, client_defaults),
            (EntityType.IP, ip, ip_defaults),
        ):
            if name is not None and is_default:
                raise click.UsageError(f"a name for {kind}, or the defaults: not both")
            if name is not None or is_default:
                parts.append((kind, name))
        return command(*arguments, parts=parts, **options)

    return with_parts


Parts = list[tuple[EntityType, str | None]]


def _entity(parts: Parts) -> QuotaEntity:
    if not parts:
        raise click.UsageError("whose quota? Give --user, --client-id or --ip, or one of their defaults")
    try:
        return read_entity(parts)
    except KafkaError as error:
        raise click.UsageError(error.message) from None


@quota.command(name="set")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True, callback=pairs)
@entity_options
@client_options
def set_(values: list[tuple[str, str]], parts: Parts, client: Client) -> None:
    """Set quotas. Those of other keys stay.

    \b
      forebay quota set --user ada producer_byte_rate=1048576 consumer_byte_rate=2097152
      forebay quota set --user ada --client-defaults request_percentage=50
      forebay quota set --client-defaults producer_byte_rate=10485760
      forebay quota set --user-defaults controller_mutation_rate=5
      forebay quota set --ip-defaults connection_creation_rate=20
    """
    entity = _entity(parts)
    ops = [QuotaOp(key, _number(key, text)) for key, text in values]
    try:
        altered(entity, {}, ops)
    except KafkaError as error:
        raise click.UsageError(error.message) from None
    QuotaAdmin(client).alter(entity, ops)
    click.echo(f"set quota of {entity}: {', '.join(f'{op.key}={_text(op.value)}' for op in ops)}")


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{key} has to be a number, not {text!r}") from None


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return str(int(value)) if value.is_integer() else f"{value:g}"


@quota.command(name="list")
@entity_options
@json_option
@client_options
def list_(parts: Parts, as_json: bool, client: Client) -> None:
    """List the quotas: all, or those in which the given user, client id or address occurs."""
    if parts:
        _entity(parts)  # an invalid entity is reported here
    found = QuotaAdmin(client).describe([component(kind, name) for kind, name in parts])
    if as_json:
        print_json([{"entity": dict(entity.parts), "quotas": values} for entity, values in found])
        return
    rows = [(*_cells(entity), key, _text(value)) for entity, values in found for key, value in values.items()]
    print_table(("USER", "CLIENT-ID", "IP", "KEY", "VALUE"), rows)


def _cells(entity: QuotaEntity) -> list[str | None]:
    names: Mapping[EntityType, str | None] = entity.names
    return [
        None if kind not in names else "(default)" if names[kind] is None else names[kind]
        for kind in EntityType
    ]


@quota.command(name="delete")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@entity_options
@client_options
def delete(keys: tuple[str, ...], parts: Parts, client: Client) -> None:
    """Delete quotas of these keys, or all of the user, client id or address. It is then limited by the next
    less specific quota, if there is one.

    \b
      forebay quota delete --user ada producer_byte_rate
      forebay quota delete --client-defaults
    """
    entity, admin = _entity(parts), QuotaAdmin(client)
    there = admin.of(entity)
    missing = [key for key in keys if key not in there]
    if missing or not there:
        known = f"it has {', '.join(there)}" if there else "it has none; `forebay quota list` shows all"
        what = ", ".join(missing) or "quota"
        raise CommandError(f"there is no {what} of {entity}: {known}")
    going = keys or tuple(there)
    admin.alter(entity, [QuotaOp(key, None) for key in going])
    click.echo(f"deleted quota of {entity}: {', '.join(going)}")


@quota.command()
@click.option("--user", metavar="NAME", help="The client's user; ANONYMOUS if it does not log in.")
@click.option("--client-id", metavar="ID", help="The client's id.")
@click.option("--ip", metavar="IP", help="Instead of both: an address.")
@json_option
@client_options
def show(user: str | None, client_id: str | None, ip: str | None, as_json: bool, client: Client) -> None:
    """Show what limits a client, and whose quota that is.

    \b
      forebay quota show --user ada --client-id etl
      forebay quota show --ip 10.0.0.7
    """
    found = _effective(user, client_id, ip, client)
    if as_json:
        shown = {
            key: None if each is None else {"value": each.bound, "set_for": dict(each.entity.parts)}
            for key, each in found.items()
        }
        print_json(shown)
        return
    rows = [
        (key, "unlimited", "-") if each is None else (key, _text(each.bound), str(each.entity))
        for key, each in found.items()
    ]
    print_table(("KEY", "VALUE", "SET FOR"), rows)


def _effective(
    user: str | None, client_id: str | None, ip: str | None, client: Client
) -> dict[QuotaKey, Quota | None]:
    """Decided here, by the same code as in brokers, from the quotas of a broker."""
    if ip is not None:
        if user is not None or client_id is not None:
            raise click.UsageError("an address, or a user and a client id: not both")
        name = _entity([(EntityType.IP, ip)]).names[EntityType.IP]
        quotas = Quotas(QuotaAdmin(client).describe())
        return {QuotaKey.CONNECTION: quotas.find_of_ip(name or "")}
    if user is None and client_id is None:
        raise click.UsageError("whose? Give --user, --client-id, or both; or --ip")
    quotas = Quotas(QuotaAdmin(client).describe())
    return {key: quotas.find(key, user or "ANONYMOUS", client_id or "") for key in _KEYS_OF_CLIENTS}
