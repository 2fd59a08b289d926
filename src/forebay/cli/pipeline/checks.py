"""Checks before Spark is started, which takes seconds and tells at length.

Every check raises an error of one line that says what to do.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli.client import CONNECT_SECONDS, CommandError
from forebay.cli.pipeline.exit_codes import TRY_AGAIN

if TYPE_CHECKING:
    from forebay.spark.pipelines import Brokers, CatalogSettings, DecodeSettings

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?\])?|local-cluster\[.+\]")
_STANDALONE = "spark://"
CONNECT = "sc://"
_OTHERS = ("k8s://",)
_PORTS = {_STANDALONE: 7077, CONNECT: 15002}
_YARN_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def check_master(master: str) -> None:
    """Raises an error if Spark does not know this kind of master, or nobody answers at its address."""
    if _LOCAL.fullmatch(master) or master.startswith(_OTHERS):
        return
    if master == "yarn":
        if not any(map(os.environ.get, _YARN_VARIABLES)):
            raise CommandError(f"--master yarn needs {' or '.join(_YARN_VARIABLES)} in the environment")
        return
    for scheme, port in _PORTS.items():
        if master.startswith(scheme):
            _knock(master, master.removeprefix(scheme).partition("/")[0].partition(";")[0], port)
            return
    raise CommandError(
        f"--master {master} is no master: give local[2], local[*], spark://HOST:7077, yarn, k8s://... or sc://HOST"
    )


def _knock(master: str, addresses: str, default_port: int) -> None:
    """Succeeds as soon as one of the addresses takes a connection."""
    problem = "no address"
    for address in addresses.split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", str(default_port))
        if not host or not port.isdigit() or int(port) > 65535:
            raise CommandError(f"--master {master}: {address!r} is not HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
            return
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
    raise CommandError(
        f"--master {master}: nobody answers there ({problem}): is Spark's master running?",
        exit_code=TRY_AGAIN,
    )


def check_folder(option: str, location: str) -> None:
    """Raises an error if no files can be made in a folder, which may not exist yet. URIs are not checked."""
    if "://" in location:
        return
    path = Path(location).absolute()
    parent = next(folder for folder in (path, *path.parents) if folder.exists())
    if not parent.is_dir():
        raise CommandError(f"{option} {location}: {parent} is a file, not a directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise CommandError(f"{option} {location}: no permission to write in {parent}")
    try:
        # Some places take no files whatever their permissions say: /proc, a disk that is read-only or full.
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(
            f"{option} {location}: no file can be made in {parent} ({reason}): name another place"
        ) from None


def check_checkpoint(folder: str | None) -> None:
    if folder is not None:
        check_folder("--checkpoint", folder)


def check_report(path: str) -> None:
    from forebay.spark.pipelines.report import check_suffix

    check_suffix(path)
    check_folder("--report", str(Path(path).parent))


def check_archive_target(
    brokers: Brokers,
    topic: str,
    to: str,
    form: str,
    decode: DecodeSettings | None = None,
    dead_letters: str | None = None,
    catalog: CatalogSettings | None = None,
) -> None:
    """Raises an error if the topic cannot be archived there."""
    from forebay.spark.pipelines.archiving.archive import letters_of
    from forebay.spark.pipelines.archiving.beginning import check_not_made_anew, check_same
    from forebay.spark.pipelines.archiving.decoded import looked_up
    from forebay.spark.pipelines.archiving.layout import ICEBERG, Position, read_position
    from forebay.spark.pipelines.archiving.tables.table import open_iceberg
    from forebay.spark.pipelines.lake import Lake

    partitions = brokers.partitions(topic)
    check_folder("--to", to)
    lake = Lake(to)
    position = read_position(lake)
    if position is None:
        decoded = None if decode is None else looked_up(decode, topic)
        kept = None if catalog is None else catalog.to_keep()
        position = Position(topic=topic, format=form, partitions=partitions, decoded=decoded, catalog=kept)
    check_same(lake, position, topic, form, decode, catalog)
    check_not_made_anew(lake, position, brokers.topic_id(topic))
    letters_of(brokers, topic, dead_letters, is_decoded=position.decoded is not None)
    if form == ICEBERG and position.catalog is not None:
        open_iceberg(lake, position, catalog).check()


def check_archive(location: str) -> None:
    """Raises an error if there is no archive."""
    from forebay.spark.pipelines.archiving.layout import require_position
    from forebay.spark.pipelines.lake import Lake

    require_position(Lake(location))
