"""Batches that were sent for folded partitions, handed to the brokers that lead the ones which take them.

They keep their order: the requests to a broker leave in the order of `send`, on one connection, and are
handled in that order. When the partition that takes them gets another leader, a batch waits until those
before it are answered: its client is told to send it again. The new leader would call it out of order, which
makes librdkafka begin a new epoch and store messages twice (`core/partition/producers/refused_batches.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from forebay.broker.background import Background
from forebay.broker.cluster.peers.peers import Peers
from forebay.core.partition.folds.closed_partition import NOTHING_BEFORE, PassOn
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import BatchHeader, read_header
from forebay.wire.messages.folded_produce import FoldedProduceRequest, FoldedProduceResponse
from forebay.wire.messages.produce import ProduceRequest

_ACKS_ALL = -1
_TIMEOUT_MS = 10_000
_MARGIN_S = 5.0
"""How much longer than the client is willing to wait for acknowledgements."""

Done: TypeAlias = Callable[[FoldedProduceResponse], None]
Source: TypeAlias = tuple[bytes, int]
"""The id of a topic, and a producer's alias, which tells the folded partition too."""


class _UnderWay(NamedTuple):
    """The last batch of a source that was handed over."""

    node_id: int
    producer_epoch: int
    base_sequence: int


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
        self._under_way: dict[Source, _UnderWay] = {}

    def check_order(self, topic_id: bytes, header: BatchHeader, node_id: int) -> None:
        """Raise KafkaError if a batch before this one is still under way to another broker than this.

        `header`: under the producer's alias.
        """
        last = self._under_way.get((topic_id, header.producer_id))
        if (
            last is not None
            and last.node_id != node_id
            and header.is_behind(last.producer_epoch, last.base_sequence)
        ):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the partition that takes it has another leader now, and a batch before it is under way to "
                "the one before",
            )

    def taken_here(self, topic_id: bytes, header: BatchHeader) -> None:
        """This broker leads the partition now, and gets the batch: what comes behind it may follow."""
        self._under_way.pop((topic_id, header.producer_id), None)

    def send(self, node_id: int, request: FoldedProduceRequest, done: Done) -> None:
        """Call `done` later, with the answer of that broker or with an error that clients retry."""
        assert request.records is not None
        header = read_header(request.records)
        source = request.topic_id, header.producer_id
        under_way = self._under_way[source] = _UnderWay(node_id, header.producer_epoch, header.base_sequence)
        sending = self._send(node_id, request, done, source, under_way)
        self._background.spawn(sending, "handing over a batch of a partition")

    async def _send(
        self, node_id: int, request: FoldedProduceRequest, done: Done, source: Source, under_way: _UnderWay
    ) -> None:
        try:
            response = await self.ask(node_id, request)
        finally:
            if self._under_way.get(source) is under_way:
                del self._under_way[source]
        done(response)

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
