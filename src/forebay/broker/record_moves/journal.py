"""The journal of movers: machines on __forebay_moves, and how movers on any broker reach them."""

from __future__ import annotations

from typing import TypeAlias

from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.coordinators.host import CoordinatorHost
from forebay.broker.coordinators.loaded_shard import Ticket
from forebay.broker.coordinators.runtime import Coordinator
from forebay.core.cluster.image import ClusterImage
from forebay.core.record_moves.journal import MoveJournalShard, failure, read_pending, sent_pending
from forebay.core.record_moves.move import MoverState
from forebay.core.step import Effect, RequestInfo, Step
from forebay.errors import KafkaError, known_code
from forebay.wire.fields import Response
from forebay.wire.messages.move_journal import MoveJournalRequest, MoveJournalResponse

MOVES_TOPIC = "__forebay_moves"
_PARTITIONS = 4
_SEGMENT_BYTES = 16 * 1024 * 1024
_TIMEOUT_S = 5.0

_Shard: TypeAlias = MoveJournalShard


class MoveJournal:
    def __init__(self, host: CoordinatorHost, peers: Peers) -> None:
        self._node_id = host.node_id
        self._time = host.time
        self._peers = peers
        self.coordinator = Coordinator(
            host,
            topic=MOVES_TOPIC,
            partitions=_PARTITIONS,
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": str(_SEGMENT_BYTES),
                "compression.type": "producer",
            },
            make=lambda _: MoveJournalShard(),
            failure=failure,
            perform=_no_effects,
        )

    def follow(self, _before: ClusterImage, _after: ClusterImage) -> None:
        self.coordinator.follow()

    async def open(self, mover_id: str, term: int) -> MoverState:
        """Fence the movers before; the state as they have left it. Raises KafkaError."""
        return await self._ask(MoveJournalRequest(mover_id=mover_id, term=term))

    async def write(self, mover_id: str, state: MoverState) -> MoverState:
        """Replace the state that has this version. May be repeated if the answer does not come.

        Raises KafkaError, with FENCED_LEADER_EPOCH if another mover has taken over.
        """
        request = MoveJournalRequest(
            mover_id=mover_id,
            term=state.term,
            version=state.version,
            producer_id=state.producer_id,
            next_sequence=state.next_sequence,
            pending=sent_pending(state.pending),
        )
        return await self._ask(request)

    async def _ask(self, request: MoveJournalRequest) -> MoverState:
        await self.coordinator.ensure_topic()
        leader = self.coordinator.leader_of(request.mover_id)
        version = request.MAX_VERSION
        if leader == self._node_id:
            response: Response = await self.answer(request, RequestInfo(api_version=version))
        else:
            response = await self._peers.ask(leader, request, version=version, timeout_s=_TIMEOUT_S)
        assert isinstance(response, MoveJournalResponse)
        if response.error_code:
            raise KafkaError(known_code(response.error_code), response.error_message or "")
        return MoverState(
            term=request.term,
            version=response.version,
            producer_id=response.producer_id,
            next_sequence=response.next_sequence,
            pending=None if response.pending is None else read_pending(response.pending),
        )

    async def answer(self, request: MoveJournalRequest, info: RequestInfo) -> MoveJournalResponse:
        """The answer to a mover whose journal is kept here."""

        def decide(machine: _Shard, ticket: Ticket) -> Step:
            return machine.journal(ticket, request, info, self._time.now())

        answer = await self.coordinator.ask(request.mover_id, request, info, decide)
        assert isinstance(answer, MoveJournalResponse)
        return answer


def _no_effects(effect: Effect) -> None:
    raise AssertionError(f"the journal of movers has no effects, got {effect}")
