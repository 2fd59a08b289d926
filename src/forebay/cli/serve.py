"""`forebay serve`: one broker, in the foreground, until SIGTERM or SIGINT.

This module decides nothing: flags become settings, the settings become a `BrokerConfig`, and the broker runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.config import BrokerConfig


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
    from forebay.broker.process import run
    from forebay.config import load

    config = load(file, os.environ, [*settings, *_flag_settings(data, listen)])
    place = f"(node {config.node.node_id}, data {data or _data_text(config)})"

    def on_ready(host: str, port: int) -> None:
        click.echo(f"forebay ready on {_address(host, port)} {place}")

    try:
        return run(config, on_ready)
    except OSError as error:
        raise ForebayError(f"the broker cannot start: {error}") from error


def _flag_settings(data: str | None, listen: str | None) -> Iterable[str]:
    if data is not None:
        yield f"log.dirs={data}"
    if listen is not None:
        yield f"listeners={listen if '://' in listen else f'PLAINTEXT://{listen}'}"


def _data_text(config: BrokerConfig) -> str:
    """The directory as it was written, where a Path would have dropped the leading dot."""
    directories = config.get("log.dirs")
    return directories[0] if isinstance(directories, tuple) else str(directories)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
