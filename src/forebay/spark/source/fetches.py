"""The fetches of one range of offsets from brokers.

The next fetch is asked for before the last one is decoded, so that the broker and the network work while this
side does.

A leader that moved, a broker that restarts or a connection that broke is tried again until the deadline,
which begins anew with every piece that arrives. Offsets that are gone are lost data: an error, or with
failOnDataLoss=false a reason to go on behind them. Offsets that cannot be read yet, since a new leader waits
for its replicas, are not lost: they fail the task whatever failOnDataLoss says, and nothing is passed over.
"""

from __future__ import annotations

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.spark.source.data_loss import data_loss
from forebay.spark.source.offset_lookup import offsets_at
from forebay.spark.source.offset_ranges import EARLIEST, EARLIEST_LOCAL, LATEST, OffsetRange
from forebay.spark.source.options import Fetching
from forebay.spark.source.record_batches import Piece, base_offset_at, next_base_offset, select
from forebay.spark.wire.connections import BrokerConnection, Cluster, check
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

BY_NAME_VERSION = 12
"""The last version that names topics, for brokers that do not give them ids."""
BY_ID_VERSION = 13
WAIT_MS_MAX = 500

_BYTES_FIRST = 1 << 16
_BYTES_PER_RECORD_GUESS = 1024


_NO_SUCH_TOPIC = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class Fetches:
    """The fetches of one range, one of them on its way while the one before is worked on."""

    def __init__(self, fetching: Fetching, wanted: OffsetRange, topic_id: str = "") -> None:
        self._fetching = fetching
        self._wanted = wanted
        self._topic_id = bytes.fromhex(topic_id)
        self._cluster = Cluster.shared(fetching.bootstrap, fetching.connection)
        self._offset, self._end = wanted.start, wanted.end
        self._bytes_per_record = _BYTES_PER_RECORD_GUESS
        self._posted: BrokerConnection | None = None
        self._rack = fetching.rack
        self._replica: int | None = None
        """The broker that the leader has named instead of itself."""
        self._bytes_min = 0
        """How large an answer may be at least."""
        self._behind: int | None = None
        """The offset behind the corrupt batch that comes next, once it is known."""
        self.lost: list[tuple[int, int]] = []
        """Stretches of offsets that are gone: the first, and how many."""

    def next_piece(self) -> tuple[memoryview, Piece] | None:
        """The next batches; None at the end. The memory is valid until the next call."""
        while self._offset < self._end:
            try:
                data, records = self._cluster.attempt(self._fetch)
                piece = self._piece(data, records)
            except KafkaError as error:
                self._recover(error)
                continue
            if piece is None:
                continue
            if piece.next_offset == self._offset:
                if len(records):
                    raise ProtocolError(
                        f"{self._wanted.at} at offset {self._offset}: the broker sent {len(records)}"
                        " bytes, and not one whole batch"
                    )
                self._offset = self._end  # the broker has no batch between here and there
                continue
            self._bytes_per_record = max(1, len(records) // (piece.next_offset - self._offset))
            self._offset = piece.next_offset
            self._post_next()
            return records, piece
        return None

    def _piece(self, data: PartitionData, records: memoryview) -> Piece | None:
        """The batches of an answer; None to ask again, where nothing says yet how far a corrupt one goes.

        The next batch says so. It may come in a larger answer. If it does not, brokers end answers where
        segments end: then it is looked for by its offset. Behind the last batch, the log ends.
        """
        piece = self._selected(data, records, behind=None)
        behind, asked_bytes = self._behind, self._bytes_min
        if not piece.is_end_unknown or piece.next_offset > self._offset:
            self._behind, self._bytes_min = None, 0
        elif behind is not None:
            self._behind, self._bytes_min = None, 0
            piece = self._selected(data, records, behind=behind)
        elif not asked_bytes:
            self._bytes_min = len(records) + self._fetching.bytes_max
            return None
        else:
            corrupt = base_offset_at(records) or 0
            # The answers to this are put where these records are.
            self._behind = next_base_offset(corrupt, self._offset, self._readable(data), self._base_at)
            return None
        return piece

    def _selected(self, data: PartitionData, records: memoryview, behind: int | None) -> Piece:
        return select(
            records,
            start=self._offset,
            end=self._end,
            aborted=data.aborted_transactions or () if self._fetching.read_committed else (),
            check_crcs=self._fetching.check_crcs,
            keep_corrupt=True,
            behind=behind,
        )

    def abandon(self) -> None:
        """Close the connection if an answer is still to come on it: nothing else can use it."""
        posted, self._posted = self._posted, None
        if posted is not None:
            posted.close()

    # -- asking --------------------------------------------------------------------------------------

    def _post_next(self) -> None:
        if self._offset >= self._end:
            return
        try:
            self._post()
        except KafkaError:
            self._posted = None  # asked again when its turn comes, with patience

    def _post(self, request: FetchRequest | None = None) -> BrokerConnection:
        broker = self._broker()
        if broker.unanswered:
            # Another read in this thread waits for its answer here; it will have to ask again.
            broker.close()
            broker = self._broker()
        broker.post(request or self._request(), BY_ID_VERSION if self._topic_id else BY_NAME_VERSION)
        self._posted = broker
        return broker

    def _broker(self) -> BrokerConnection:
        if self._replica is not None:
            return self._cluster.broker(self._replica)
        return self._cluster.leader(*self._wanted.at)

    def _fetch(self) -> tuple[PartitionData, memoryview]:
        """An answer with records, or one that says that there are none up to the end of the range."""
        if self._rack:
            try:
                data, records = self._ask()
                if data.preferred_read_replica >= 0 and not len(records):
                    self._replica = data.preferred_read_replica
                    data, records = self._ask()
                return self._with_all(data, records)
            except KafkaError:
                if self._replica is None:
                    raise
                self._replica, self._rack = None, ""
        return self._with_all(*self._ask())

    def _ask(self) -> tuple[PartitionData, memoryview]:
        connection = self._posted or self._post()
        self._posted = None
        answer: FetchResponse = connection.read(extra_s=WAIT_MS_MAX / 1000)
        check(answer.error_code, f"fetch from {connection.address}")
        found = [data for topic in answer.responses for data in topic.partitions]
        if not found:  # as Kafka answers a client that is over its quota
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{connection.address} throttles this client"
            )
        (data,) = found
        check(data.error_code, f"{self._wanted.at} at offset {self._offset}")
        return data, data.records if isinstance(data.records, memoryview) else memoryview(b"")

    def _with_all(self, data: PartitionData, records: memoryview) -> tuple[PartitionData, memoryview]:
        """The same; an error when there are no records, and yet some must come before the end."""
        readable = self._readable(data)
        if not len(records) and readable < self._end:
            # After a change of leader the high watermark may lag behind what was promised, for a moment.
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self._wanted.at} is readable up to offset {readable}, before {self._end}",
            )
        if not len(records):
            self._check_not_remote(self._offset)
        return data, records

    def _base_at(self, offset: int) -> int | None:
        """The base offset of the first batch that the broker sends for an offset; None if it has none."""

        def ask() -> int | None:
            self._post(self._request(offset, bytes_max=1))
            _, records = self._ask()
            if not len(records):
                self._check_not_remote(offset)
            return base_offset_at(records)

        return self._cluster.attempt(ask)

    def _readable(self, data: PartitionData) -> int:
        return data.last_stable_offset if self._fetching.read_committed else data.high_watermark

    def _check_not_remote(self, offset: int) -> None:
        if self._is_remote(offset):
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"offset {offset} of {self._wanted.at} is in an object store, and has not come from it",
            )

    def _is_remote(self, offset: int) -> bool:
        """True if the broker has to get the records from somewhere else: it sends none before they are there.

        Otherwise an answer without records says that compaction has left none up to the end of the log.
        """
        at = self._wanted.at
        try:
            return offsets_at(self._cluster, {at: EARLIEST_LOCAL})[at] > offset
        except KafkaError as error:
            if error.code.retriable:
                raise
            return False  # a broker that knows nothing of such places

    def _request(self, offset: int | None = None, bytes_max: int | None = None) -> FetchRequest:
        at = self._wanted.at
        # Not more than the range is likely to hold: a task for few records reads few bytes.
        likely = _BYTES_FIRST + (self._end - self._offset) * self._bytes_per_record * 5 // 4
        size = bytes_max or max(self._bytes_min, min(self._fetching.bytes_max, likely))
        partition = FetchPartition(
            partition=at.partition,
            fetch_offset=self._offset if offset is None else offset,
            current_leader_epoch=self._cluster.leadership(at.topic, at.partition).epoch,
            partition_max_bytes=size,
        )
        return FetchRequest(
            max_wait_ms=WAIT_MS_MAX if offset is None else 0,
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(self._fetching.read_committed),
            rack_id=self._rack,
            topics=[self._named(FetchTopic(partitions=[partition]))],
        )

    def _named(self, topic: FetchTopic) -> FetchTopic:
        if self._topic_id:
            topic.topic_id = self._topic_id
        else:
            topic.topic = self._wanted.at.topic
        return topic

    # -- lost data -----------------------------------------------------------------------------------

    def _recover(self, error: KafkaError) -> None:
        """Move behind what is known to be lost, if that is allowed; raises otherwise."""
        at, end = self._wanted.at, self._end
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            earliest = offsets_at(self._cluster, {at: EARLIEST})[at]
            data_loss(
                self._fetching,
                f"offset {self._offset} of {at} is out of range; the log now starts at {earliest}",
            )
            # An offset beyond the log is no better: the log is shorter than when the range was planned.
            self._pass_over(min(earliest, end) if self._offset < earliest else end)
        elif error.code is ErrorCode.OFFSET_NOT_AVAILABLE:
            # Only a leader that knows what is committed answers this.
            latest = offsets_at(self._cluster, {at: LATEST}, read_committed=self._fetching.read_committed)[at]
            if latest >= end:
                raise error
            self._end = max(self._offset, latest)
            data_loss(self._fetching, f"offsets {self._end} to {end} of {at} are gone: it ends at {latest}")
            self.lost.append((self._end, end - self._end))
        elif error.code in _NO_SUCH_TOPIC:
            data_loss(self._fetching, f"offsets {self._offset} to {end} of {at} are gone: {error.message}")
            self._pass_over(end)
        else:
            raise error

    def _pass_over(self, until: int) -> None:
        self.lost.append((self._offset, until - self._offset))
        self._offset = until
        self._behind, self._bytes_min = None, 0
