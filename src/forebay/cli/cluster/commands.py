"""`forebay cluster`: a local cluster to try out, and the view and the balance of any cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.cluster.check import check
from forebay.cli.cluster.moves import count_text, list_text, moving_options, print_moves, print_moves_json
from forebay.cli.cluster.start import start
from forebay.cli.cluster.workers import workers
from forebay.cli.output import json_option, print_json, print_table
from forebay.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.partition_state import PartitionState
    from forebay.core.cluster.replicas.balancing import Move

_SHOWN_MAX = 50
"""Lines of a table of partitions; --json has them all."""


@click.group()
def cluster() -> None:
    """Start a local cluster; see and balance any cluster."""


cluster.add_command(start)
cluster.add_command(check)
cluster.add_command(workers)


@cluster.command()
@json_option
@client_options
def describe(as_json: bool, client: Client) -> None:
    """Show brokers, their share of the work, and partitions that are not as they should be."""
    from forebay.cli.cluster.showing import print_failovers
    from forebay.operations.cluster.cluster_state import read_image
    from forebay.operations.cluster.failovers import failover_json, read_failovers
    from forebay.operations.wire import WireConnection

    with WireConnection.open(client) as connection:
        image = read_image(connection)
        failovers = read_failovers(connection)
    if as_json:
        print_json({**_description(image), "failovers": [failover_json(each) for each in failovers]})
        return
    _print_description(image)
    if failovers:
        print_failovers(failovers)


@cluster.command()
@moving_options
@client_options
def rebalance(dry_run: bool, at_once: int, seconds_max: int, as_json: bool, client: Client) -> None:
    """Spread partitions and leaders evenly over all brokers, also those that have just joined."""
    from forebay.core.cluster.replicas.balancing import rebalance as decide

    moved = _move(client, decide, dry_run, at_once, seconds_max, as_json)
    led = _level_leaders(client, dry_run)
    if as_json or (dry_run and not led):
        return
    verb = "would go" if dry_run else "went"
    if led:
        click.echo(f"{len(led)} leaderships {verb} to the first replica of their partition")
    if not dry_run:
        told = "the cluster is balanced" if led else "nothing to move"
        click.echo(f"{count_text(moved)} moved; the cluster is balanced" if moved else told)


def _level_leaders(client: Client, dry_run: bool) -> Sequence[tuple[str, int]]:
    """Have each partition led by its first replica: those are level, whoever leads since the last restart."""
    from forebay.cli.cluster.showing import tell
    from forebay.core.cluster.replicas.balancing import led_by_others
    from forebay.operations.cluster.cluster_state import read_image
    from forebay.operations.cluster.reassignments import elect_first_replicas
    from forebay.operations.wire import WireConnection

    with WireConnection.open(client) as connection:
        places = led_by_others(read_image(connection))
        if places and not dry_run:
            tell(elect_first_replicas(connection, places))
    return places


@cluster.command()
@click.argument("node", metavar="NODE", type=click.IntRange(0))
@click.option("--fewer-replicas", is_flag=True, help="Do without a replica that no other broker can take.")
@click.option("--undo", is_flag=True, help="Let the broker have partitions again.")
@moving_options
@client_options
def drain(
    node: int,
    fewer_replicas: bool,
    undo: bool,
    dry_run: bool,
    at_once: int,
    seconds_max: int,
    as_json: bool,
    client: Client,
) -> None:
    """Move everything away from the broker NODE, so that it can be taken out for good.

    From then on it gets no new partitions either, until it is started again, or by --undo.
    """
    from forebay.core.cluster.replicas.balancing import drain as decide

    if undo:
        _take_back(client, node)
        return

    def decide_drain(image: ClusterImage) -> list[Move]:
        try:
            return decide(image, node, fewer_replicas=fewer_replicas)
        except KafkaError as error:
            hint = "; or do without it by --fewer-replicas"
            cannot = error.code is ErrorCode.INVALID_REPLICATION_FACTOR and not fewer_replicas
            raise CommandError(error.message + (hint if cannot else "")) from None

    moved = _move(client, decide_drain, dry_run, at_once, seconds_max, as_json, drained=node)
    if not as_json and not dry_run:
        click.echo(f"{count_text(moved)} moved; broker {node} holds nothing and can be stopped for good")


@cluster.command()
@click.argument("node", metavar="NODE", type=click.IntRange(0))
@client_options
def forget(node: int, client: Client) -> None:
    """Forget a broker that was stopped for good: that it was drained, and its settings.

    Its number stays taken, so that no other broker is mistaken for it.
    """
    from forebay.operations.cluster.cluster_state import forget_broker
    from forebay.operations.wire import WireConnection

    with WireConnection.open(client) as connection:
        forget_broker(connection, node)
    click.echo(f"forgot broker {node}")


def _take_back(client: Client, node: int) -> None:
    from forebay.operations.cluster.cluster_state import mark_drained
    from forebay.operations.wire import WireConnection

    with WireConnection.open(client) as connection:
        mark_drained(connection, node, drained=False)
    click.echo(f"broker {node} gets partitions again; its share by `forebay cluster rebalance`")


def _move(
    client: Client,
    decide: Callable[[ClusterImage], list[Move]],
    dry_run: bool,
    at_once: int,
    seconds_max: int,
    as_json: bool,
    drained: int | None = None,
) -> int:
    """Returns how many partitions were moved, or would be."""
    from forebay.cli.cluster.showing import carry_out_all, carry_out_showing
    from forebay.core.cluster.replicas.balancing import holds_any
    from forebay.operations.cluster.cluster_state import mark_drained, read_image
    from forebay.operations.wire import WireConnection

    with WireConnection.open(client) as connection:
        image = read_image(connection)
        moves = decide(image)
        if as_json:
            print_moves_json(image, moves)
        elif dry_run:
            print_moves(image, moves)
        away = sorted({node for move in moves for node in move.replicas if node not in image.brokers})
        if away:
            click.echo(f"moves of partitions on broker {list_text(away)} wait until it is back", err=True)
        limits = {"at_once": at_once, "seconds_max": seconds_max}
        if drained is not None and not dry_run:
            mark_drained(connection, drained, drained=True)
            return carry_out_all(
                connection, lambda now: decide(now) if holds_any(now, drained) else [], **limits
            )
        if moves and not dry_run:
            carry_out_showing(connection, moves, **limits)
    return len(moves)


# -- what is shown ---------------------------------------------------------------------------------------


def _description(image: ClusterImage) -> dict[str, Any]:
    from dataclasses import asdict

    from forebay.operations.cluster.cluster_state import broker_loads, moving, states, under_replicated

    return {
        "cluster_id": image.cluster_id,
        "controller": image.controller if image.controller in image.brokers else None,
        "brokers": [asdict(load) for load in broker_loads(image)],
        "partitions": sum(1 for _ in states(image)),
        "leaderless": [_place(name, state) for name, state in states(image) if state.leader < 0],
        "under_replicated": [_partition_json(name, state) for name, state in under_replicated(image)],
        "reassignments": [_partition_json(name, state) for name, state in moving(image)],
    }


def _partition_json(topic: str, state: PartitionState) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": state.index,
        "leader": state.leader if state.leader >= 0 else None,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "adding": list(state.adding),
        "removing": list(state.removing),
    }


def _print_description(image: ClusterImage) -> None:
    from forebay.operations.cluster.cluster_state import broker_loads, moving, states, under_replicated

    everything = list(states(image))
    leaderless = sum(state.leader < 0 for _, state in everything)
    behind, under_way = under_replicated(image), moving(image)
    controller = f"broker {image.controller}" if image.controller in image.brokers else "none"
    click.echo(f"cluster {image.cluster_id}  controller: {controller}")
    click.echo(
        f"{len(everything)} partitions, {leaderless} without leader, {len(behind)} under-replicated, "
        f"{len(under_way)} being moved"
    )
    rows = [
        (
            each.id,
            f"{each.address} (drained)" if each.drained else each.address,
            each.rack,
            each.leaders,
            each.replicas,
            each.out_of_sync,
        )
        for each in broker_loads(image)
    ]
    print_table(("BROKER", "ADDRESS", "RACK", "LEADERS", "REPLICAS", "OUT OF SYNC"), rows)
    if behind:
        _print_partitions("under-replicated", behind)
    if under_way:
        _print_partitions("being moved", under_way)


def _print_partitions(title: str, partitions: Sequence[tuple[str, PartitionState]]) -> None:
    more = len(partitions) - _SHOWN_MAX
    click.echo(f"{title}:")
    rows = [
        (
            _place(name, state),
            state.leader if state.leader >= 0 else None,
            list_text(state.replicas),
            list_text(state.isr),
            list_text(state.adding),
            list_text(state.removing),
        )
        for name, state in partitions[:_SHOWN_MAX]
    ]
    print_table(("PARTITION", "LEADER", "REPLICAS", "ISR", "ADDING", "REMOVING"), rows)
    if more > 0:
        click.echo(f"... and {more} more; --json shows all")


def _place(topic: str, state: PartitionState) -> str:
    return f"{topic}-{state.index}"
