"""Carries out reassignments: some at a time, with progress, until the last one has ended.

Once begun, a move belongs to the cluster: it continues if this command is interrupted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from forebay.cli.client import CommandError
from forebay.core.cluster.replicas.balancing import Move
from forebay.errors import ErrorCode
from forebay.operations.cluster_state import Place, moves_under_way
from forebay.operations.wire import WireConnection, check, error_text
from forebay.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from forebay.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

_POLL_SECONDS = 0.3
_PREFERRED = 0
_HARMLESS = {
    ErrorCode.NONE,
    ErrorCode.ELECTION_NOT_NEEDED,
    # It may have died since; the controller will handle that when it is back.
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def carry_out(connection: WireConnection, moves: Sequence[Move], *, at_once: int, seconds_max: float) -> None:
    """Raises CommandError if a move is refused, or if the time is up."""
    waiting = list(moves)
    under_way: set[Place] = set()
    deadline = time.monotonic() + seconds_max
    with _progress(len(moves)) as show, _said_when_interrupted():
        while waiting or under_way:
            under_way &= moves_under_way(connection).keys()
            room = at_once - len(under_way)
            if waiting and room > 0:
                begun, waiting = waiting[:room], waiting[room:]
                _begin(connection, begun)
                under_way |= {(move.topic, move.partition) for move in begun}
            show(len(moves) - len(waiting) - len(under_way))
            if time.monotonic() > deadline:
                raise CommandError(
                    f"{len(under_way)} moves did not end in {seconds_max:.0f} s, {len(waiting)} not begun; "
                    "what has begun goes on: see `forebay cluster describe`, then run this again"
                )
            if under_way:
                time.sleep(_POLL_SECONDS)
    elect_first_replicas(connection, [(move.topic, move.partition) for move in moves])


def _begin(connection: WireConnection, moves: Sequence[Move]) -> None:
    topics: dict[str, list[ReassignablePartition]] = {}
    for move in moves:
        wanted = ReassignablePartition(partition_index=move.partition, replicas=list(move.replicas))
        topics.setdefault(move.topic, []).append(wanted)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()]
    )
    answer = connection.ask(request, AlterPartitionReassignmentsResponse)
    check(answer.error_code, answer.error_message)
    for topic in answer.responses:
        for part in topic.partitions:
            # A topic that was deleted meanwhile needs no move any more.
            if part.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                problem = error_text(part.error_code, part.error_message)
                raise CommandError(f"{topic.name}-{part.partition_index} cannot be moved: {problem}")


def elect_first_replicas(connection: WireConnection, partitions: Sequence[Place]) -> None:
    """The order of replicas says who should lead; this makes it so without waiting for the controller."""
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    wanted = [TopicPartitions(topic=name, partitions=parts) for name, parts in topics.items()]
    answer = connection.ask(
        ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=wanted), ElectLeadersResponse
    )
    check(answer.error_code, None)
    for topic in answer.replica_election_results:
        for part in topic.partition_result:
            if part.error_code not in _HARMLESS:
                problem = error_text(part.error_code, part.error_message)
                click.echo(f"{topic.topic}-{part.partition_id} has kept its leader: {problem}", err=True)


@contextmanager
def _said_when_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted; the moves that have begun go on: see `forebay cluster describe`", err=True)
        raise


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show how many are done: a bar at a terminal, a line for each step elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines(total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("moving partitions"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


class _Lines:
    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = -1

    def __call__(self, done: int) -> None:
        if done != self._shown:
            click.echo(f"moved {done} of {self._total} partitions", err=True)
            self._shown = done
