"""Batches that were sent for folded partitions, handed to the brokers that lead the ones which take them.

They keep their order: the requests to a broker leave in the order of `send`, on one connection, and are
handled in that order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from forebay.broker.background import Background
from forebay.broker.cluster.peers.peers import Peers
from forebay.core.partition.folds.closed_partition import NOTHING_BEFORE, PassOn
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.folded_produce import FoldedProduceRequest, FoldedProduceResponse
from forebay.wire.messages.produce import ProduceRequest

_ACKS_ALL = -1
_TIMEOUT_MS = 10_000
_MARGIN_S = 5.0
"""How much longer than the client is willing to wait for acknowledgements."""

Done: TypeAlias = Callable[[FoldedProduceResponse], None]


def folded_request(
    records: memoryview | None,
    known: PassOn,
    topic_id: bytes,
    index: int,
    *,
    version: int = ProduceRequest.MAX_VERSION,
    acks: int = _ACKS_ALL,
    timeout_ms: int = _TIMEOUT_MS,
    transactional_id: str | None = None,
) -> FoldedProduceRequest:
    """The batch under its alias, and what the folded partition knows of its producer."""
    before = known.before or NOTHING_BEFORE
    return FoldedProduceRequest(
        transactional_id=transactional_id,
        produce_version=version,
        acks=acks or 1,  # the other broker has to answer
        timeout_ms=timeout_ms,
        topic_id=topic_id,
        index=index,
        before_epoch=before.producer_epoch,
        before_next_sequence=before.next_sequence,
        records=records,
    )


class Handovers:
    def __init__(self, peers: Peers, background: Background) -> None:
        self._peers = peers
        self._background = background

    def send(self, node_id: int, request: FoldedProduceRequest, done: Done) -> None:
        """Call `done` later, with the answer of that broker or with an error that clients retry."""
        self._background.spawn(self._send(node_id, request, done), "handing over a batch of a partition")

    async def _send(self, node_id: int, request: FoldedProduceRequest, done: Done) -> None:
        done(await self.ask(node_id, request))

    async def ask(self, node_id: int, request: FoldedProduceRequest) -> FoldedProduceResponse:
        timeout_s = max(request.timeout_ms, 0) / 1000 + _MARGIN_S
        try:
            response = await self._peers.ask(node_id, request, version=0, timeout_s=timeout_s)
        except KafkaError as error:
            # It may have been carried out. Not all clients retry every code; this one they do.
            return FoldedProduceResponse(
                error_code=ErrorCode.REQUEST_TIMED_OUT,
                error_message=f"the leader of the partition that takes it has not answered: {error.message}",
            )
        assert isinstance(response, FoldedProduceResponse)
        return response
