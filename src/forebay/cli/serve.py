"""`forebay serve`: one broker, in the foreground, until SIGTERM or SIGINT.

This module decides nothing: flags become settings, the settings become a `BrokerConfig`, and the broker runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from forebay.cli.client import BOOTSTRAP_VARIABLE
from forebay.errors import ConfigError, ForebayError


@click.command()
@click.option("--data", metavar="DIR", help="Where the logs live (log.dirs). [default: ./forebay-data]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where to listen; port 0 picks a free one (listeners). [default: 127.0.0.1:9092]",
)
@click.option(
    "--config",
    "file",
    metavar="FILE.toml",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings from a file.",
)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="One setting; may be repeated.")
def serve(data: str | None, listen: str | None, file: Path | None, settings: tuple[str, ...]) -> int:
    """Run a broker in the foreground.

    Settings have Kafka's names. They come from the file, from the environment (log.retention.ms is
    FOREBAY_LOG_RETENTION_MS) and from --set, later ones winning; --data and --listen win over all.
    """
    from forebay.broker.broker import run
    from forebay.config import load

    if file is not None and not file.exists():
        raise ConfigError(f"there is no file {file}")
    overrides = [*settings, *_flag_settings(data, listen)]
    config = load(file, _broker_environ(os.environ), overrides)
    node_id, directory = config.get("node.id"), config.get("log.dirs")

    def on_ready(host: str, port: int) -> None:
        click.echo(f"forebay ready on {_address(host, port)} (node {node_id}, data {directory})")

    try:
        return run(config, on_ready)
    except OSError as error:
        raise ForebayError(f"the broker cannot start: {error}") from error


def _flag_settings(data: str | None, listen: str | None) -> Iterable[str]:
    if data is not None:
        yield f"log.dirs={data}"
    if listen is not None:
        yield f"listeners={listen if '://' in listen else f'PLAINTEXT://{listen}'}"


def _broker_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The client commands' variable shares the prefix but is no setting of a broker."""
    return {name: value for name, value in environ.items() if name != BOOTSTRAP_VARIABLE}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
