"""`forebay console`: the web console for one or several clusters, until Ctrl-C."""

from __future__ import annotations

import logging
import secrets
from types import ModuleType
from typing import TYPE_CHECKING

import click

from forebay.cli.client import Client, client_options, pairs_option
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.console.settings import ClusterSettings

PORT = 8080
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="0 picks a free one.",
)
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option(
    "--login",
    is_flag=True,
    help="People log in with the users of the cluster, and have their rights; without it a token is printed.",
)
@pairs_option(
    "--cluster",
    "clusters",
    metavar="NAME=HOST:PORT",
    help="A cluster to show, instead of -b; may be repeated.",
)
@click.option(
    "--name",
    "names",
    metavar="NAME",
    multiple=True,
    help="A name by which browsers reach the console; may be repeated.",
)
@click.option(
    "--registry", metavar="URL", help="A schema registry, to show values of Avro, Protobuf and JSON Schema."
)
@click.option(
    "--mask",
    "masks",
    metavar="FIELD",
    multiple=True,
    help="Hide this field of messages, except from users who may alter the topic; may be repeated.",
)
@click.option(
    "--pipeline",
    "pipelines",
    metavar="[HOST:]PORT",
    multiple=True,
    help="Show the steps of a `forebay pipeline run --metrics [HOST:]PORT`; may be repeated.",
)
@click.option("--tls-certificate", "certificate", metavar="FILE", help="Serve HTTPS with this certificate.")
@click.option("--tls-key", "key", metavar="FILE", help="The key of the certificate.")
@click.option("--token", envvar="FOREBAY_CONSOLE_TOKEN", show_envvar=True, help="[default: a new one]")
@client_options
def console(
    host: str,
    port: int,
    read_only: bool,
    login: bool,
    clusters: list[tuple[str, str]],
    names: tuple[str, ...],
    registry: str | None,
    masks: tuple[str, ...],
    pipelines: tuple[str, ...],
    certificate: str | None,
    key: str | None,
    token: str | None,
    client: Client,
) -> None:
    """Open a web console: see what the queue does, and do what you would otherwise type.

    \b
      forebay console -b localhost:9092
      forebay console --cluster test=localhost:9092 --cluster live=broker:9092 --read-only
      forebay console --host 0.0.0.0 --login -X security.protocol=SASL_SSL -X ssl.ca.location=ca.pem
    """
    if host not in _LOOPBACK and not login:
        raise click.UsageError(
            "on other addresses than this machine's own, people must log in: add --login, and users with "
            "`forebay user add`"
        )
    if bool(certificate) != bool(key):
        raise click.UsageError("--tls-certificate and --tls-key belong together")
    if login and not client.properties.get("security.protocol", "SASL_").upper().startswith("SASL_"):
        raise click.UsageError("--login needs a listener with SASL: give -X security.protocol=SASL_SSL")
    serving = _import_serving()
    from forebay.console.settings import ConsoleSettings

    settings = ConsoleSettings(
        clusters=_clusters(clusters, client),
        token=token or secrets.token_urlsafe(24),
        login=login,
        read_only=read_only,
        host=host,
        port=port,
        names=names,
        registry=registry or "",
        masks=masks,
        pipelines=tuple(f"127.0.0.1:{each}" if each.isdigit() else each for each in pipelines),
        certificate=certificate or "",
        key=key or "",
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if registry:
        from forebay.console.messages.registry import shared_decoder

        shared_decoder(registry)  # says now what is missing
    running = serving.Console(settings)
    running.bind()
    running.run(lambda: click.echo(f"forebay console on {running.url}"))


def _clusters(given: list[tuple[str, str]], client: Client) -> tuple[ClusterSettings, ...]:
    from forebay.console.settings import ClusterSettings

    named = given or [("cluster", client.bootstrap)]
    if len({name for name, _ in named}) < len(named):
        raise click.UsageError("two clusters have the same name")
    return tuple(
        ClusterSettings(name=name, bootstrap=bootstrap, properties=client.properties)
        for name, bootstrap in named
    )


def _import_serving() -> ModuleType:
    try:
        from forebay.console import serving
    except ImportError as error:
        raise ForebayError(
            f"the console needs more packages ({error.name}): pip install 'forebay[console]'"
        ) from None
    return serving
