"""`forebay serve`: one broker, or several workers, in the foreground, until SIGTERM or SIGINT.

This module decides nothing: flags become settings, the settings become a `BrokerConfig`, and the broker runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.config import BrokerConfig
    from forebay.local.child_console import ChildConsole
    from forebay.local.secure_setup import SecureSetup


@click.command()
@click.option("--data", metavar="DIR", help="Where the logs live (log.dirs). [default: ./forebay-data]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where to listen; port 0 picks a free one (listeners). [default: 127.0.0.1:9092]",
)
@click.option(
    "--cluster",
    metavar="URL",
    help="The cluster to join, etcd://HOST:PORT,.../NAME or etcds://... (forebay.cluster). [default: none]",
)
@click.option(
    "--node-id",
    metavar="N",
    help="The number of this broker (node.id). [default: 1; in a cluster: one is assigned]",
)
@click.option(
    "--workers",
    metavar="N",
    help="How many broker processes serve on this machine, or auto: one per core (forebay.workers). "
    "[default: 1]",
)
@click.option("--rack", metavar="NAME", help="Where it stands, to keep replicas apart (broker.rack).")
@click.option(
    "--remote",
    metavar="DIR-OR-URL",
    help="Where closed segments of topics with remote.storage.enable go: a directory, s3://bucket/prefix, "
    "gs://... or az://... (forebay.remote.url).",
)
@click.option(
    "--config",
    "file",
    metavar="FILE.toml",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings from a file.",
)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="One setting; may be repeated.")
@click.option(
    "--secure",
    is_flag=True,
    help="TLS, logins and ACLs, with certificates and an administrator made at the first start, in "
    "DIR/security.",
)
@click.option("--console", is_flag=True, help="Also a web console, on this machine only.")
@click.option(
    "--console-port",
    metavar="PORT",
    type=click.IntRange(0, 65_535),
    default=8080,
    show_default=True,
    help="The port of the console; 0 picks a free one.",
)
def serve(
    data: str | None,
    listen: str | None,
    cluster: str | None,
    node_id: str | None,
    workers: str | None,
    rack: str | None,
    remote: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    secure: bool,
    console: bool,
    console_port: int,
) -> int:
    """Run a broker in the foreground, or several that are one host.

    Settings have Kafka's names. They come from the file, from the environment (log.retention.ms is
    FOREBAY_LOG_RETENTION_MS) and from --set, later ones winning; the other options win over all.
    """
    from forebay.config import load

    flags = {
        "log.dirs": data,
        "listeners": _listener(listen, "PLAINTEXT"),
        "forebay.cluster": cluster,
        "node.id": node_id,
        "broker.rack": rack,
        "forebay.workers": workers,
        "forebay.remote.url": remote,
    }
    given = _texts(flags)
    setup = None
    if secure:
        if cluster is not None:
            raise click.UsageError(
                "--secure is for a broker of its own: for a cluster, `forebay cluster start --secure`, or "
                "docs/security.md"
            )
        setup, given = _secured(file, settings, flags, listen)
    config = load(file, os.environ, [*given, *settings] if secure else [*settings, *given])

    shown: list[ChildConsole] = []

    def on_ready(host: str, port: int) -> None:
        count = config.workers.count
        who = f"{count} workers" if count > 1 else f"node {_node_id(config)}"
        place = f"({who}, data {data or _data_text(config)})"
        if setup is not None:
            login = setup.write_client_files(_address(_reachable(host), port))
            click.echo(f"log in with --command-config {login}", err=True)
        click.echo(f"forebay ready on {_address(host, port)} {place}")
        if console:
            shown.append(_console(_address(_reachable(host), port), setup, console_port))

    try:
        return _run(config, on_ready)
    except OSError as error:
        raise ForebayError(f"the broker cannot start: {error}") from error
    finally:
        for child in shown:
            child.stop()


def _run(config: BrokerConfig, on_ready: Callable[[str, int], None]) -> int:
    """The broker, in this process, or workers under this process."""
    if config.workers.count > 1:
        from forebay.local.workers.supervisor import run_workers

        return run_workers(config, on_ready)
    from forebay.broker.process import run

    if (config.node.data_dir / "workers").exists():
        from forebay.local.workers.leftovers import check_none_left

        check_none_left(config.node.data_dir, 1)
    return run(config, on_ready)


def _console(bootstrap: str, setup: SecureSetup | None, port: int) -> ChildConsole:
    """A console for the broker, which is reached with the administrator's login if it wants one."""
    from forebay.local.child_console import ChildConsole

    child = ChildConsole()
    client = {"bootstrap.servers": bootstrap} if setup is None else setup.client_settings(bootstrap)
    child.start(client, port=port, on_line=click.echo)
    return child


def _listener(listen: str | None, protocol: str) -> str | None:
    return listen if listen is None or "://" in listen else f"{protocol}://{listen}"


def _secured(
    file: Path | None, settings: tuple[str, ...], flags: Mapping[str, str | None], listen: str | None
) -> tuple[SecureSetup, list[str]]:
    """The setup that --secure has created, and the settings that use it."""
    from forebay.config import load
    from forebay.local.secure_setup import PROTOCOL, SecureSetup

    if listen is not None and "://" in listen:
        raise click.UsageError(f"--secure listens with {PROTOCOL}: give --listen HOST:PORT")
    # To find the data directory and the store, independently of the listeners.
    place = {**flags, "listeners": "PLAINTEXT://127.0.0.1:0", "forebay.cluster": ""}
    before = load(file, os.environ, [*settings, *_texts(place)])
    setup = SecureSetup(before.node.data_dir / "security")
    address = listen or "127.0.0.1:9092"
    setup.make_files([address.rpartition(":")[0].strip("[]")])
    setup.add_users(before)
    return setup, _texts({**flags, **setup.settings(), "listeners": f"{PROTOCOL}://{address}"})


def _texts(settings: Mapping[str, str | None]) -> list[str]:
    return [f"{key}={text}" for key, text in settings.items() if text is not None]


def _reachable(host: str) -> str:
    """The address at which a client on this machine reaches a broker that listens on all interfaces."""
    return "localhost" if host in ("", "0.0.0.0", "::") else host


def _node_id(config: BrokerConfig) -> int | str:
    """The configured node id, or the allocated one, which a broker has written down when it is ready."""
    if config.node.node_id is not None:
        return config.node.node_id
    from forebay.storage.checkpoint import read_properties
    from forebay.storage.datadir import META

    return read_properties((config.node.data_dir / META).read_text(encoding="utf-8")).get(
        "node.id", "unknown"
    )


def _data_text(config: BrokerConfig) -> str:
    """The directory as it was written, where a Path would have dropped the leading dot."""
    directories = config.get("log.dirs")
    return directories[0] if isinstance(directories, tuple) else str(directories)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
