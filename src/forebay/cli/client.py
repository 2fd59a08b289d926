"""The commands' access to a broker: the options that all of them have, and the names that they use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from forebay.cli.properties import read_properties
from forebay.operations.client import (
    CONNECT_SECONDS,
    METADATA_SECONDS,
    REQUEST_SECONDS,
    Client,
    CommandError,
    NoAnswer,
    error_of,
    failed,
    no_topic,
    settle,
    split_address,
)

__all__ = [
    "Client",
    "CommandError",
    "NoAnswer",
    "CONNECT_SECONDS",
    "METADATA_SECONDS",
    "REQUEST_SECONDS",
    "client_options",
    "error_of",
    "failed",
    "no_topic",
    "pairs",
    "pairs_option",
    "settle",
    "split_address",
]

BOOTSTRAP_VARIABLE = "FOREBAY_BOOTSTRAP_SERVERS"
CONFIG_VARIABLE = "FOREBAY_CLIENT_CONFIG"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def pairs_option(*names: str, metavar: str, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option of KEY=VALUE that may be repeated; the command gets pairs."""
    return click.option(*names, metavar=metavar, multiple=True, callback=pairs, help=help)


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the broker's address; the command gets them as `client`."""

    @click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        show_envvar=True,
        help=f"The broker, or several with commas. [default: {DEFAULT_BOOTSTRAP}]",
    )
    @pairs_option(
        "-X",
        "properties",
        metavar="KEY=VALUE",
        help="A librdkafka property, such as security.protocol=SSL; may be repeated.",
    )
    @click.option(
        "--command-config",
        "properties_file",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar=CONFIG_VARIABLE,
        show_envvar=True,
        help="Properties from a file, such as those of a login; -X wins over it.",
    )
    @functools.wraps(command)
    def with_client(
        *arguments: Any,
        bootstrap: str | None,
        properties: list[tuple[str, str]],
        properties_file: Path | None,
        **options: Any,
    ) -> Any:
        _require_names(click.get_current_context())
        given = {
            **(read_properties(properties_file) if properties_file is not None else {}),
            **dict(properties),
        }
        servers = given.pop("bootstrap.servers", None)
        client = Client(bootstrap=bootstrap or servers or DEFAULT_BOOTSTRAP, properties=given)
        try:
            return command(*arguments, client=client, **options)
        except NoAnswer as error:
            raise client.refusal() or error from None

    return with_client


def _require_names(context: click.Context) -> None:
    """No topic, group or user has an empty name; a variable of a shell script that is not set has one."""
    for parameter in context.command.params:
        given = context.params.get(parameter.name or "")
        if isinstance(parameter, click.Argument) and (given == "" or given == ("",)):
            raise click.BadParameter("it is empty; give a name", context, parameter)


def pairs(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    """Turn repeated KEY=VALUE options into pairs; click reports invalid ones."""
    split = []
    for value in values:
        key, equals, rest = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
        split.append((key.strip(), rest))
    return split
