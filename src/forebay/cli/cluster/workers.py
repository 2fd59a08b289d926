"""`forebay cluster workers`: the workers of a host, and moving partitions before their number changes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.cluster.moves import count_text, moving_options, print_moves, print_moves_json
from forebay.cli.output import print_json, print_table
from forebay.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.replicas.balancing import Move
    from forebay.operations.cluster.worker_hosts import WorkerLoad
    from forebay.operations.wire import WireConnection


@click.command()
@click.argument("count", metavar="[COUNT]", type=click.IntRange(1, 256), required=False)
@click.option("--host", metavar="HOST", help="The host that is meant, in a cluster of several.")
@click.option("--fewer-replicas", is_flag=True, help="Do without a replica that no other worker can take.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@moving_options
@client_options
def workers(
    count: int | None,
    host: str | None,
    fewer_replicas: bool,
    yes: bool,
    dry_run: bool,
    at_once: int,
    seconds_max: int,
    as_json: bool,
    client: Client,
) -> None:
    """Show the workers of each host; or move partitions, for COUNT workers on one.

    For fewer workers than run, everything is moved away from the last ones: afterwards, start `forebay serve`
    with --workers COUNT. For more, start it with --workers COUNT first: then this gives all workers their
    share.
    """
    from forebay.cli.cluster.showing import carry_out_all, carry_out_showing
    from forebay.operations.cluster.cluster_state import mark_drained, read_image
    from forebay.operations.cluster.worker_hosts import read_workers, workers_of
    from forebay.operations.wire import WireConnection

    with WireConnection.open(client) as connection:
        image = read_image(connection)
        loads = read_workers(client.admin(), image)
        if count is None:
            _show(loads, as_json)
            return
        here = workers_of(loads, host)
        if count > len(here):
            raise CommandError(
                f"{len(here)} workers run there: start `forebay serve` with --workers {count}, and then do "
                "this again"
            )
        leaving = [each for each in here if each.number > count]
        moves = _moves(image, leaving, fewer_replicas)
        (print_moves_json if as_json else print_moves)(image, moves)
        if dry_run:
            return
        _ask(moves, yes or as_json)
        for each in leaving:
            mark_drained(connection, each.broker, drained=True)
        limits = {"at_once": at_once, "seconds_max": seconds_max}
        moved = len(moves)
        if leaving:
            moved = carry_out_all(connection, lambda now: _moves(now, leaving, fewer_replicas), **limits)
        elif moves:
            carry_out_showing(connection, moves, **limits)
        if not as_json:
            _tell(connection, leaving, moved, count)


def _moves(image: ClusterImage, leaving: Sequence[WorkerLoad], fewer_replicas: bool) -> Sequence[Move]:
    from forebay.core.cluster.replicas.balancing import drain_all, rebalance

    if not leaving:
        return rebalance(image)
    try:
        return drain_all(image, {each.broker for each in leaving}, fewer_replicas=fewer_replicas)
    except KafkaError as error:
        hint = "; or do without it by --fewer-replicas"
        cannot = error.code is ErrorCode.INVALID_REPLICATION_FACTOR and not fewer_replicas
        raise CommandError(error.message + (hint if cannot else "")) from None


def _ask(moves: Sequence[Move], is_sure: bool) -> None:
    if not moves or is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("moving needs --yes when nobody can be asked")
    click.confirm(f"Move {count_text(len(moves))}?", abort=True)


def _tell(connection: WireConnection, leaving: Sequence[WorkerLoad], moved: int, count: int) -> None:
    if leaving:
        names = ", ".join(str(each.number) for each in leaving)
        click.echo(
            f"{count_text(moved)} moved; worker {names} holds nothing: start `forebay serve` with "
            f"--workers {count} now"
        )
        return
    _level_leaders(connection)
    if moved:
        click.echo(f"{count_text(moved)} moved; each worker has its share")


def _level_leaders(connection: WireConnection) -> None:
    """Have each partition led by its first replica: those are level."""
    from forebay.cli.cluster.showing import tell
    from forebay.core.cluster.replicas.balancing import led_by_others
    from forebay.operations.cluster.cluster_state import read_image
    from forebay.operations.cluster.reassignments import elect_first_replicas

    places = led_by_others(read_image(connection))
    if places:
        tell(elect_first_replicas(connection, places))


def _show(loads: Sequence[WorkerLoad], as_json: bool) -> None:
    if as_json:
        print_json([_json(each) for each in loads])
        return
    rows = [
        (
            each.host,
            each.number or None,
            each.broker,
            f"{each.address} (drained)" if each.drained else each.address,
            each.leaders,
            each.replicas,
        )
        for each in loads
    ]
    print_table(("HOST", "WORKER", "BROKER", "ADDRESS", "LEADERS", "REPLICAS"), rows)


def _json(load: WorkerLoad) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(load)
