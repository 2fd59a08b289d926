"""`forebay work TOPIC --group GROUP -- COMMAND`: a task queue, with any program as its worker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import click

from forebay.cli.client import BOOTSTRAP_VARIABLE, Client, CommandError, client_options
from forebay.cli.work.runner import CommandRunner

_STOPPING = b"forebay: stopping when the commands that run have ended; again ends them now\n"


@click.command()
@click.argument("topic")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-g", "--group", required=True, metavar="NAME", help="The share group of these workers.")
@click.option(
    "-j",
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 200),
    default=1,
    show_default=True,
    help="How many commands run at the same time.",
)
@click.option(
    "--timeout",
    "idle_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop when no message came for this time.",
)
@click.option(
    "--start",
    type=click.Choice(("earliest", "latest")),
    default="earliest",
    show_default=True,
    help="Where a new group begins.",
)
@click.option(
    "--lock",
    "lock_seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long a command may take; then its message is delivered again.",
)
@click.option(
    "--delivery-limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="How often a message is delivered before it is given up.",
)
@click.option(
    "--retry-backoff",
    "retry_backoff_seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="The wait before a released message comes again; it doubles each time.",
)
@click.option("--dead-letters", metavar="TOPIC", help="Where messages go that are rejected or given up.")
@client_options
def work(
    topic: str,
    command: tuple[str, ...],
    group: str,
    jobs: int,
    idle_s: float | None,
    start: str,
    lock_seconds: float | None,
    delivery_limit: int | None,
    retry_backoff_seconds: float | None,
    dead_letters: str | None,
    client: Client,
) -> None:
    """Run COMMAND for each message of TOPIC, until Ctrl-C or SIGTERM.

    The message's value is on standard input. Exit code 0 accepts the message, 65 rejects it, any other
    releases it: it is delivered again. Key, headers and place are in variables FOREBAY_KEY,
    FOREBAY_HEADER_NAME, FOREBAY_TOPIC, FOREBAY_PARTITION, FOREBAY_OFFSET, FOREBAY_DELIVERY_COUNT.

    \b
      forebay work pictures --group resize --jobs 4 -- ./resize.sh
      forebay work mails -g send --retry-backoff 10 --delivery-limit 8 -- sendmail -t

    --lock, --delivery-limit, --retry-backoff and --dead-letters are settings of the group, for all its
    workers; `forebay config get group NAME` shows them.
    """
    from forebay.client import Queue
    from forebay.client.queues.work import Stop
    from forebay.client.queues.worker import stopping_on_signals

    _check_command(command)
    client.partitions(client.admin(), topic)
    queue = Queue(
        client.bootstrap,
        topic,
        group=group,
        start="latest" if start == "latest" else "earliest",
        lock_seconds=lock_seconds,
        delivery_limit=delivery_limit,
        retry_backoff_seconds=retry_backoff_seconds,
        dead_letter_topic=dead_letters,
        settings={"client.id": "forebay-cli", "log_level": 0, **client.properties},
    )
    stop = Stop()
    environ = {**os.environ, BOOTSTRAP_VARIABLE: client.bootstrap}
    runner = CommandRunner(command, group=group, environ=environ, stop=stop)
    with queue, stopping_on_signals(stop, first=_tell_stopping, again=runner.terminate):
        summary = queue.work(runner.handle, jobs=jobs, idle_s=idle_s, stop=stop)
    click.echo(f"handled {summary.handled} messages of {topic}: {summary}", err=True)
    if runner.failure is not None:
        raise runner.failure


def _tell_stopping() -> None:
    """From a signal handler: a buffered stream may be in the middle of a write."""
    os.write(2, _STOPPING)


def _check_command(command: Sequence[str]) -> None:
    if shutil.which(command[0]) is None:
        raise CommandError(f"there is no command {command[0]}: give its path, and mind that it is executable")
