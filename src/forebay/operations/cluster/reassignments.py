"""Carries out reassignments: some at a time, until the last one has ended.

Once begun, a move belongs to the cluster: it continues if whoever has begun it goes away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from forebay.core.cluster.replicas.balancing import Move
from forebay.errors import ErrorCode
from forebay.operations.client import CommandError
from forebay.operations.cluster.cluster_state import Place, moves_under_way
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


def carry_out(
    connection: WireConnection,
    moves: Sequence[Move],
    *,
    at_once: int,
    seconds_max: float,
    show: Callable[[int], None] = lambda _done: None,
) -> list[str]:
    """Move partitions and elect their first replicas; returns who kept the lead against that, in words.

    `show` is called with the number of moves that have ended. Raises CommandError if a move is refused, or if
    the time is up.
    """
    waiting = list(moves)
    under_way: set[Place] = set()
    deadline = time.monotonic() + seconds_max
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
    return elect_first_replicas(connection, [(move.topic, move.partition) for move in moves])


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


def elect_first_replicas(connection: WireConnection, partitions: Sequence[Place]) -> list[str]:
    """Have the first replicas lead, as the order of replicas says, without waiting for the controller.

    Returns a line for each partition that has kept its leader.
    """
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    wanted = [TopicPartitions(topic=name, partitions=parts) for name, parts in topics.items()]
    answer = connection.ask(
        ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=wanted), ElectLeadersResponse
    )
    check(answer.error_code, None)
    return [
        f"{topic.topic}-{part.partition_id} has kept its leader: "
        f"{error_text(part.error_code, part.error_message)}"
        for topic in answer.replica_election_results
        for part in topic.partition_result
        if part.error_code not in _HARMLESS
    ]
