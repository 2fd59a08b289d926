"""Batches that were sent for folded partitions, handed to the brokers that lead the ones which take them.

They keep their order: the requests to a broker leave in the order of `send`, on one connection, and are
handled in that order. When something is not as it was for the batch before, a batch waits until that one is
answered: its client is told to send it again. That is so when the partition that takes it has another leader,
when another partition takes it, and when the connection had to be made anew. The batch before may never be
stored, and this one would be out of order, which makes librdkafka begin a new epoch and store messages twice
(`core/partition/producers/refused_batches.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from typing import NamedTuple, TypeAlias

from forebay.broker.background import Background
from forebay.broker.cluster.peers.peers import Peers
from forebay.core.partition.folds.aliases import named_by
from forebay.core.partition.folds.closed_partition import NOTHING_BEFORE, PassOn
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import BatchHeader, read_header
from forebay.wire.messages.folded_produce import FoldedProduceRequest, FoldedProduceResponse
from forebay.wire.messages.produce import ProduceRequest

_ACKS_ALL = -1
_TIMEOUT_MS = 10_000
_MARGIN_S = 5.0
"""How much longer than the client is willing to wait for acknowledgements."""
_BYTES_MAX = 64 * 1024 * 1024
"""With so many bytes under way to a broker, clients are told to send again. Batches under way are copies, and
with acks=0 nothing else bounds them."""

Done: TypeAlias = Callable[[FoldedProduceResponse], None]
Source: TypeAlias = tuple[bytes, int, int]
"""The id of a topic, the partition that a client has named, and the id of its producer. Not the alias: its
batches may come by another fold than those before."""


class Taker(NamedTuple):
    """A partition that takes batches, and the broker that leads it."""

    node_id: int
    partition: int


class _UnderWay:
    """The last batch of a source that was handed over."""

    __slots__ = ("base_sequence", "connection", "producer_epoch", "to")

    def __init__(self, to: Taker, header: BatchHeader) -> None:
        self.to = to
        self.producer_epoch = header.producer_epoch
        self.base_sequence = header.base_sequence
        self.connection: object | None = None
        """By which it was sent; None before, and when it was refused."""

    def is_before(self, header: BatchHeader) -> bool:
        return header.is_behind(self.producer_epoch, self.base_sequence)


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
        self._bytes: Counter[int] = Counter()
        """How much is under way to each broker."""

    def check(self, topic_id: bytes, header: BatchHeader, to: Taker) -> None:
        """Raise KafkaError if a batch cannot be handed over now.

        `header`: under the producer's alias.
        """
        self._check_order(topic_id, header, to)
        if self._bytes[to.node_id] >= _BYTES_MAX:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"broker {to.node_id} has not answered for {_BYTES_MAX >> 20} MB of batches that it takes",
            )

    def taken_here(self, topic_id: bytes, header: BatchHeader, here: Taker) -> None:
        """This broker leads the partition now, and gets the batch: what comes behind it may follow.

        Raises KafkaError if it cannot have it yet.
        """
        if self._under_way:
            self._check_order(topic_id, header, here)
            self._under_way.pop(_source(topic_id, header, here), None)

    def _check_order(self, topic_id: bytes, header: BatchHeader, to: Taker) -> None:
        last = self._under_way.get(_source(topic_id, header, to))
        if last is not None and last.to != to and last.is_before(header):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "another partition or another leader takes it now, and a batch before it is under way to the "
                "one before",
            )

    def has_under_way(self, topic_id: bytes, named: Container[int]) -> bool:
        """True if batches that clients have sent for one of these partitions are not answered yet."""
        return any(source[0] == topic_id and source[1] in named for source in self._under_way)

    def send(self, node_id: int, request: FoldedProduceRequest, done: Done) -> None:
        """Call `done` later, with the answer of that broker or with an error that clients retry."""
        assert request.records is not None
        header, to = read_header(request.records), Taker(node_id, request.index)
        source = _source(request.topic_id, header, to)
        last = self._under_way.get(source)
        before = last if last is not None and last.is_before(header) else None
        under_way = self._under_way[source] = _UnderWay(to, header)
        self._bytes[node_id] += header.size

        def sent_by(connection: object) -> None:
            if before is not None and before.connection is not connection:
                raise KafkaError(
                    ErrorCode.NETWORK_EXCEPTION,
                    "the batch before it was refused, or sent by another connection",
                )
            under_way.connection = connection

        async def hand_over() -> None:
            try:
                response = await self.ask(node_id, request, sent_by)
            finally:
                self._bytes[node_id] -= header.size
                if self._under_way.get(source) is under_way:
                    del self._under_way[source]
            if response.error_code:
                under_way.connection = None
            done(response)

        self._background.spawn(hand_over(), "handing over a batch of a partition")

    async def ask(
        self, node_id: int, request: FoldedProduceRequest, sent_by: Callable[[object], None] | None = None
    ) -> FoldedProduceResponse:
        """`sent_by`: as for `Peers.ask`."""
        timeout_s = max(request.timeout_ms, 0) / 1000 + _MARGIN_S
        try:
            response = await self._peers.ask(
                node_id, request, version=0, timeout_s=timeout_s, sent_by=sent_by
            )
        except KafkaError as error:
            # It may have been carried out. Not all clients retry every code; this one they do.
            return FoldedProduceResponse(
                error_code=ErrorCode.REQUEST_TIMED_OUT,
                error_message=f"the leader of the partition that takes it has not answered: {error.message}",
            )
        assert isinstance(response, FoldedProduceResponse)
        return response


def _source(topic_id: bytes, header: BatchHeader, to: Taker) -> Source:
    named = named_by(header.producer_id, to.partition)
    return topic_id, named.partition, named.producer_id
