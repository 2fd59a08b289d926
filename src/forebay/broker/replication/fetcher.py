"""How a broker fetches from one leader: one connection, one fetch at a time, for all partitions it leads.

The fetch session remembers at the leader what was asked for, so a request names only the partitions that have
moved since the last. A partition that fails is taken out of the session and added again a little later; the
others go on. When the connection or the session breaks, the next request names all partitions.

The leader holds a fetch until there is something to send. A partition that is added in that time would wait,
too. A leader that has just begun to lead answers soon (`follower_tracking.py`), and the next fetch names it.
If the leader does not, the fetch is cancelled, and sent again with the new partition. That costs a
connection, and a request with all partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.cluster.peers.peer_dialing import PeerDialing
from forebay.broker.live_config import LiveConfig
from forebay.broker.partition.partition import Partition
from forebay.broker.replication.fetch_size import AnswerSize
from forebay.broker.replication.follower_append import FollowerAppend, last_fetched_epoch
from forebay.broker.replication.refused_partitions import Key, RefusedPartitions
from forebay.broker.replication.throttle import Throttle
from forebay.broker.telemetry.metrics import Metrics
from forebay.config import is_throttled
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.registration import BrokerRegistration
from forebay.errors import ErrorCode, ForebayError, KafkaError, known_code
from forebay.wire.fields import Response
from forebay.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

log = logging.getLogger(__name__)


_RESPONSE_BYTES_MAX = 2**31 - 1
"""The most that an answer's length can express. An answer holds at least one batch, of a size that only the
leader knows: with any smaller limit a batch beyond it would keep all of the leader's partitions from being
followed."""

_NAMING_S = 50e-6
"""What it costs a follower and its leader to name one partition again."""


class Fetcher:
    def __init__(
        self,
        leader: int,
        *,
        node_id: int,
        settings: LiveConfig,
        metadata: Metadata,
        lease: HeldLease,
        dialing: PeerDialing,
        appender: FollowerAppend,
        throttle: Throttle,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        resume: Callable[[Partition], None],
    ) -> None:
        """`resume` is called when a partition that was left out for a while should be added again."""
        self.leader = leader
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._lease = lease
        self._dialing = dialing
        self._appender = appender
        self._throttle = throttle
        self._metrics = metrics
        self._loop = loop
        self._resume = resume
        self._partitions: dict[Key, Partition] = {}
        self._named: dict[Key, int | None] = {}
        """The partitions in the leader's session, and the leader epoch each was asked in. None for what has
        come back since it was asked, and may have another log."""
        self._moved: dict[Key, None] = {}
        """The partitions that the next request has to name."""
        self._gone: dict[Key, None] = {}
        """The partitions that the leader's session has, and that are not fetched from it any more."""
        self._session_id = self._session_epoch = 0
        self._is_outdated = False
        """True if the leader's session has a partition as it was before it came back. The leader would not
        tell again what it has told then, such as the high watermark."""
        self._broker_epoch = -1
        """This broker's epoch when the session was begun."""
        self._connection: PeerConnection | None = None
        self._reached: BrokerRegistration | None = None
        """Where the leader was when the connection was made."""
        self._work = asyncio.Event()
        self._interruption: asyncio.TimerHandle | None = None
        self._interrupted = False
        self._told_of_sessions = False
        self._answer_size = AnswerSize()
        self._refused = RefusedPartitions()

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition, delay_s: float) -> None:
        """Fetch this partition, too. A fetch that waits is interrupted after this time."""
        if partition.log.offline_for_good:
            return  # it would be taken for in sync as long as nothing comes, and hold up what does
        key = (partition.topic_id, partition.index)
        if self._partitions.get(key) is partition and self._named.get(key) == partition.leader_epoch:
            return
        self._partitions[key] = partition
        self._moved[key] = None
        if key in self._gone:
            del self._gone[key]
            self._named[key], self._is_outdated = None, True
        self._work.set()
        if self._interruption is None:
            # With very many partitions it is better to wait for an answer than to name all of them again.
            wait_s = max(delay_s, len(self._partitions) * _NAMING_S)
            self._interruption = self._loop.call_later(wait_s, self._interrupt)

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        if self._partitions.get(key) is partition:
            self._leave_out(key)
            self._refused.forget(key)

    def _leave_out(self, key: Key) -> Partition:
        self._moved.pop(key, None)
        if key in self._named:
            self._gone[key] = None
        return self._partitions.pop(key)

    def _interrupt(self) -> None:
        self._interruption = None
        if self._moved and self._connection is not None:
            self._interrupted = True
            self._hang_up()

    def moved(self, registration: BrokerRegistration | None) -> None:
        """The leader was started again, perhaps elsewhere. Its old address may never answer, nor hang up."""
        if registration is not None and registration != self._reached and self._connection is not None:
            self._interrupted = True
            self._hang_up()

    def close(self) -> None:
        if self._interruption is not None:
            self._interruption.cancel()
        self._hang_up()

    # -- running -------------------------------------------------------------------------------------

    async def run(self) -> None:
        backoff_s = self._backoff_s()
        while True:
            if not self._partitions:
                self._work.clear()
                await self._work.wait()
            try:
                await self._follow(await self._connected())
            except Exception as error:
                self._hang_up()
                if not self._interrupted:
                    self._tell(error)
                    await asyncio.sleep(backoff_s)
                self._interrupted = False
                self._begin_anew()

    def _tell(self, error: Exception) -> None:
        if isinstance(error, KafkaError):
            log.debug("no fetch", extra={"leader": self.leader, "reason": error.message})
        else:  # a bug, but what other leaders send need not stop for it
            log.error("a fetch failed", extra={"leader": self.leader}, exc_info=error)

    async def _connected(self) -> PeerConnection:
        if self._connection is None or self._connection.closed:
            self._begin_anew()
            registration = self._reached = self._registration()
            self._connection = await self._dialing.open(
                registration,
                client_id=f"forebay-replica-{self._node_id}",
                response_bytes_max=_RESPONSE_BYTES_MAX,
            )
        return self._connection

    def _registration(self) -> BrokerRegistration:
        registration = self._metadata.image.brokers.get(self.leader)
        if registration is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {self.leader} is not there")
        return registration

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin_anew(self) -> None:
        self._session_id = self._session_epoch = 0
        self._is_outdated = False
        if self._named or len(self._moved) < len(self._partitions):
            self._named, self._gone = {}, {}
            self._moved = dict.fromkeys(self._partitions)

    # -- asking --------------------------------------------------------------------------------------

    async def _follow(self, connection: PeerConnection) -> None:
        """Fetch from the leader until something has to be waited for, other than its answers."""
        # No name for the answer: it would keep the memory of the first one for as long as all goes well.
        size = self._take_answer(await connection.ask(self._request(), timeout_s=self._timeout_s()))
        if self._goes_on(connection):
            size = await self._fetch_in_turns(connection)
        if not self._session_id:
            await self._go_on_without_session(size)

    def _fetch_in_turns(self, connection: PeerConnection) -> asyncio.Future[int]:
        """Take each answer in the turn of the loop in which it comes, and send the next request in it, too:
        producers with acks=all wait for both. Done with the size of the last answer."""
        over: asyncio.Future[int] = self._loop.create_future()

        def answered(response: FetchResponse) -> None:
            if over.done():  # nobody follows this leader any more
                return
            try:
                size = self._take_answer(response)
                if self._goes_on(connection):
                    ask()
                else:
                    over.set_result(size)
            except Exception as error:
                failed(error)

        def failed(error: Exception) -> None:
            if not over.done():
                over.set_exception(error)

        def ask() -> None:
            connection.post(self._request(), answered, failed, timeout_s=self._timeout_s())

        ask()
        return over

    def _goes_on(self, connection: PeerConnection) -> bool:
        """True if the next request may be sent at once."""
        is_followed = bool(self._session_id and self._partitions)
        return is_followed and not connection.closed and not connection.wants_login

    def _backoff_s(self) -> float:
        return self._settings.current.replication.fetch_backoff_ms / 1000

    def _timeout_s(self) -> float:
        return self._settings.current.replication.socket_timeout_ms / 1000

    def _take_answer(self, response: Response) -> int:
        """Apply an answer; returns how many bytes were appended."""
        assert isinstance(response, FetchResponse)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(known_code(response.error_code), f"broker {self.leader} refuses to be followed")
        self._session_id = response.session_id
        self._session_epoch = self._session_epoch + 1 if response.session_id else 0
        metrics = self._metrics
        size, batches_before = 0, metrics.replication_batches_in
        for topic in response.responses:
            for data in topic.partitions:
                size += self._take((topic.topic_id, data.partition_index), data)
        self._answer_size.taken(size, metrics.replication_batches_in - batches_before)
        return size

    async def _go_on_without_session(self, size: int) -> None:
        """A leader that has no session for its follower does not hold the fetch back: a pause does."""
        emptied = not self._named  # it ended with its last partition, as it should
        self._begin_anew()
        if not size:
            if not emptied and not self._told_of_sessions:
                self._told_of_sessions = True
                log.warning(
                    "a leader has no fetch session for this broker, which makes replication slow: "
                    "raise max.incremental.fetch.session.cache.slots",
                    extra={"leader": self.leader},
                )
            await asyncio.sleep(self._backoff_s())

    def _request(self) -> FetchRequest:
        config = self._settings.current.replication
        if self._broker_epoch != self._lease.epoch or self._is_outdated:
            # What was fetched under the epoch before proves nothing: the request names all partitions again.
            self._broker_epoch = self._lease.epoch
            self._begin_anew()
        gone, self._gone = self._gone, {}
        for key in gone:
            del self._named[key]
        moved, self._moved = self._moved, {}
        if self._interruption is not None:
            self._interruption.cancel()  # what was added is named in this request
            self._interruption = None
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch),
            max_wait_ms=config.fetch_wait_ms,
            min_bytes=1,
            max_bytes=self._answer_size.limit(config.fetch_response_max_bytes),
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[
                FetchTopic(
                    topic_id=topic_id, partitions=[self._wanted((topic_id, index)) for index in indexes]
                )
                for topic_id, indexes in _by_topic(moved).items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in _by_topic(gone).items()
            ]
            if self._session_epoch
            else [],
        )

    def _wanted(self, key: Key) -> FetchPartition:
        partition = self._partitions[key]
        self._named[key] = partition.leader_epoch
        return FetchPartition(
            partition=partition.index,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=partition.log.end_offset,
            last_fetched_epoch=last_fetched_epoch(partition),
            log_start_offset=partition.log.start_offset,
            partition_max_bytes=self._settings.current.replication.fetch_max_bytes,
        )

    # -- taking --------------------------------------------------------------------------------------

    def _take(self, key: Key, data: PartitionData) -> int:
        """Apply the answer for one partition; returns how many bytes were appended."""
        partition = self._partitions.get(key)
        if partition is None or partition.closed or self._named.get(key) != partition.leader_epoch:
            return 0  # it has another leader, or another term has begun: this answer is not for it any more
        log_ = partition.log
        before = log_.start_offset, log_.end_offset
        try:
            size = self._appender.take_over(partition, data)
        except (ForebayError, OSError) as error:
            log.log(
                self._level(key, error),
                "a partition cannot follow",
                extra={"partition": str(partition), "reason": str(error)},
            )
            if not partition.closed:
                self._pause(key, self._refused.pause_s(key, self._loop.time(), self._backoff_s()))
            return 0
        self._refused.forget(key)
        if partition.closed:
            return 0  # its log is being cut; it is added again when that is done
        moved = (log_.start_offset, log_.end_offset) != before
        if moved or data.diverging_epoch.epoch >= 0 or data.error_code:
            self._moved[key] = None
        if size and self._is_throttled(partition):
            wait_s = self._throttle.wait_s(size, self._loop.time())
            if wait_s:
                self._pause(key, wait_s)
        return size

    def _level(self, key: Key, error: Exception) -> int:
        """The log level for a refusal. Some are transient."""
        lasted_s = self._refused.refused(key, error, self._loop.time())
        if lasted_s is None or lasted_s * 1000 > self._settings.current.replication.lag_ms_max:
            return logging.WARNING
        return logging.DEBUG

    def _is_throttled(self, partition: Partition) -> bool:
        """True if the throttle applies: the replica is not in sync, and the topic's setting names it."""
        state = self._metadata.image.partition(partition.topic, partition.index)
        if self._throttle.rate is None or (state is not None and self._node_id in state.isr):
            return False
        return is_throttled(partition.config.follower_throttled_replicas, partition.index, self._node_id)

    def _pause(self, key: Key, seconds: float) -> None:
        """Leave a partition out of the session for this long."""
        self._loop.call_later(seconds, self._resume, self._leave_out(key))


def _by_topic(keys: Iterable[Key]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return topics
