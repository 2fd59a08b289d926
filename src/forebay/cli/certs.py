"""`forebay certs`: certificates for a first cluster, from its own authority."""

from __future__ import annotations

from pathlib import Path

import click

from forebay.errors import ConfigError


@click.group()
def certs() -> None:
    """Make certificates for TLS.

    For a first cluster, or one that nobody else has to trust. Where there is an authority already, use its
    certificates: docs/security.md says which settings name them.
    """


@certs.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--broker",
    "brokers",
    metavar="NAME=HOST,...",
    multiple=True,
    help="A broker, and the hosts that clients and other brokers reach it by; may be repeated.",
)
@click.option("--client", "clients", metavar="NAME", multiple=True, help="A client; may be repeated.")
@click.option(
    "--etcd-client",
    "etcd_clients",
    metavar="NAME",
    multiple=True,
    help="What brokers show to an etcd at which they log in as a user: without a common name (CN).",
)
@click.option(
    "--days", default=825, show_default=True, type=click.IntRange(1, 36500), help="How long they are good."
)
@click.option("--renew", is_flag=True, help="Replace certificates that are there already.")
def create(
    directory: Path,
    brokers: tuple[str, ...],
    clients: tuple[str, ...],
    etcd_clients: tuple[str, ...],
    days: int,
    renew: bool,
) -> None:
    """Make an authority in DIRECTORY, unless it is there, and certificates of it.

    Each file NAME.pem holds a certificate and its key. Without --broker and --client, one is made for a
    broker on this machine (broker.pem, for localhost) and one for a client (client.pem).

    The authority's key, ca.key.pem, makes everybody's certificates: keep it where brokers and clients cannot
    read it. They need ca.pem.
    """
    from forebay.local.certificates import CA_KEY_FILE, Authority, write_certificate

    if not brokers and not clients and not etcd_clients:
        brokers, clients = ("broker=localhost,127.0.0.1,::1",), ("client",)
    wanted = [_broker(text) for text in brokers] + [(name, []) for name in (*clients, *etcd_clients)]
    paths = [_path(directory, name) for name, _ in wanted]
    _check_free(paths, renew=renew)
    if (directory / CA_KEY_FILE).exists():
        authority = Authority.load(directory)
    else:
        authority = Authority.create()
        authority.save(directory)
        click.echo(f"{directory / 'ca.pem'}: a new authority; its key is {directory / CA_KEY_FILE}")
    for path, (name, hosts) in zip(paths, wanted, strict=True):
        if name in etcd_clients:
            text, who = (
                authority.issue(None, unit=name, days=days),
                f"client {name} of etcd, without a common name",
            )
        else:
            text = authority.issue(name, hosts, days=days)
            who = (
                f"broker {name}, at {', '.join(hosts)}" if hosts else f"client {name}, who is User:CN={name}"
            )
        write_certificate(path, text)
        click.echo(f"{path}: {who}")


def _broker(text: str) -> tuple[str, list[str]]:
    name, _, hosts = text.partition("=")
    found = [host.strip() for host in hosts.split(",") if host.strip()]
    if not found:
        raise ConfigError(f"--broker {text}: write NAME=HOST, or NAME=HOST,HOST for several hosts")
    return name, found


def _path(directory: Path, name: str) -> Path:
    if not name or Path(name).name != name or name.startswith(".") or name in ("ca", "ca.key"):
        raise ConfigError(f"{name!r} cannot be the name of a certificate: it names its file, NAME.pem")
    return directory / f"{name}.pem"


def _check_free(paths: list[Path], *, renew: bool) -> None:
    """Create nothing if one of them exists: a broker may be using it."""
    if len(set(paths)) < len(paths):
        raise ConfigError("two certificates have the same name")
    there = [str(path) for path in paths if path.exists()]
    if there and not renew:
        raise ConfigError(f"{', '.join(there)} is there already; replace it with --renew")
