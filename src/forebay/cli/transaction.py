"""`forebay transaction list|abort`."""

from __future__ import annotations

import sys

import click

from forebay.cli.client import Client, client_options
from forebay.cli.output import json_option, print_json, print_table
from forebay.clock import SystemClock
from forebay.operations.transactions import OPEN_STATES, Transaction, abort_transaction, list_transactions
from forebay.operations.wire import BrokerConnections


@click.group()
def transaction() -> None:
    """See transactions, and abort one whose producer is gone.

    Readers of committed messages wait for open transactions. A transaction that is open for longer than the
    timeout of its producer is aborted by its coordinator.
    """


@transaction.command(name="list")
@click.option("--open", "only_open", is_flag=True, help="Only those that are open or being ended.")
@json_option
@client_options
def list_(only_open: bool, as_json: bool, client: Client) -> None:
    """List the transactional ids of the cluster with the state of their transactions."""
    connections = BrokerConnections(client)
    try:
        found = list_transactions(connections, OPEN_STATES if only_open else ())
    finally:
        connections.close()
    now_ms = SystemClock().now_ms()
    if as_json:
        print_json([_facts(each, now_ms) for each in found])
        return
    rows = [
        (
            each.id,
            each.state,
            f"{(now_ms - each.start_ms) / 1000:.1f} s" if each.is_open and each.start_ms >= 0 else None,
            f"{each.timeout_ms / 1000:g} s",
            f"{each.producer_id}/{each.producer_epoch}",
            each.coordinator,
            len(each.partitions),
        )
        for each in found
    ]
    print_table(
        ("TRANSACTIONAL ID", "STATE", "OPEN FOR", "TIMEOUT", "PRODUCER", "COORDINATOR", "PARTITIONS"), rows
    )


@transaction.command()
@click.argument("transactional_id", metavar="TRANSACTIONAL-ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def abort(transactional_id: str, yes: bool, client: Client) -> None:
    """Abort the open transaction of a transactional id.

    Its messages are never shown to readers of committed messages. Its producer is shut out: the next thing
    that it sends is refused.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("aborting needs --yes when nobody can be asked")
        click.confirm(f"Abort the open transaction of {transactional_id}?", abort=True)
    connections = BrokerConnections(client)
    try:
        abort_transaction(connections, transactional_id)
    finally:
        connections.close()
    click.echo(f"aborted the transaction of {transactional_id}")


def _facts(each: Transaction, now_ms: int) -> dict[str, object]:
    return {
        "transactional_id": each.id,
        "state": each.state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.timeout_ms,
        "start_ms": each.start_ms if each.start_ms >= 0 else None,
        "overdue": each.is_overdue(now_ms),
        "coordinator": each.coordinator,
        "partitions": [{"topic": topic, "partition": index} for topic, index in each.partitions],
    }
