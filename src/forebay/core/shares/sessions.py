"""Share sessions (KIP-932): which partitions a member of a share group fetches from this broker.

A member names its partitions once and then sends only what changes. It has one session per broker, known by
group and member. ShareFetch and ShareAcknowledge share the session's epoch, which numbers their requests:

| epoch of the request | ShareFetch | ShareAcknowledge |
|---|---|---|
| 0 | opens a session; a session that the member had here ends | INVALID_SHARE_SESSION_EPOCH |
| -1 | ends the session, after the acknowledgements in it | the same |
| the next one | adds and forgets partitions | changes no partitions |
| any other | INVALID_SHARE_SESSION_EPOCH | INVALID_SHARE_SESSION_EPOCH |

A session that is replaced (epoch 0) releases nothing: the application may still work on the records, and
acknowledges them in the new session. A session that ends with -1, or with its connection, releases what its
member has acquired. A member that came back on another connection is not disturbed by the end of the old one.
A connection is not closed for being idle while a member holds records through it (`members_on`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from dataclasses import field
from typing import NamedTuple

from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.messages.share_acknowledge import AcknowledgePartition, ShareAcknowledgeRequest
from forebay.wire.messages.share_fetch import AcknowledgementBatch, FetchPartition, ShareFetchRequest

OPENING_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
MEMBER_ID_CHARACTERS_MAX = 36
PARTITIONS_MAX = 1_000_000
"""The most partitions of all sessions together. Members may name partitions that do not exist."""

Acknowledgements = dict["SessionPartition", list[AcknowledgementBatch]]


class SessionPartition(NamedTuple):
    topic_id: bytes
    partition: int


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    key: SessionKey
    connection: Hashable
    """The connection of its newest request; the session ends with it."""
    epoch: int = 1
    """The epoch that the next request must have."""
    partitions: dict[SessionPartition, bool] = field(default_factory=dict)
    """The partitions to fetch from; the one that returned records last is at the end. True if it must be in
    the next response even without records or errors: it is new, or had an error."""
    has_ended: bool = False
    """True once it has ended. A request that still waits acquires nothing: its response may reach nobody."""

    def answered(self, partition: SessionPartition, *, records: bool, error: bool) -> None:
        """Note the contents of a response about a partition."""
        if partition not in self.partitions:
            return  # it was only acknowledged, or has been forgotten meanwhile
        if records:
            del self.partitions[partition]
        self.partitions[partition] = error


class ShareRequest(NamedTuple):
    """One ShareFetch or ShareAcknowledge, seen through its session."""

    key: SessionKey
    acknowledgements: Acknowledgements
    session: ShareSession | None
    """None once it has ended."""
    added: Collection[SessionPartition] = ()
    """Partitions that this request adds to the session."""

    @property
    def is_final(self) -> bool:
        return self.session is None


class ShareSessions:
    """All share sessions of a broker."""

    def __init__(self, sessions_max: int, partitions_max: int) -> None:
        """`partitions_max` limits one session, `sessions_max` the broker."""
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Hashable, dict[SessionKey, ShareSession]] = {}
        self._by_group: Counter[str] = Counter()
        self.partition_count = 0
        """The number of partitions of all sessions together."""

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        """True if a member of this group has a session."""
        return group_id in self._by_group

    def fetch(self, request: ShareFetchRequest, connection: Hashable) -> ShareRequest:
        """Raises KafkaError with the code to answer with; then nothing has changed."""
        key = _key_of(request)
        acknowledgements = _acknowledgements(request)
        wanted = [
            SessionPartition(topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ]
        if request.share_session_epoch != FINAL_EPOCH:
            self._check_room(self._sessions.get(key), wanted, request)
        if request.share_session_epoch == OPENING_EPOCH:
            if acknowledgements:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "the request that opens a share session acknowledges nothing"
                )
            session = self._open(key, connection)
        else:
            session = self._continue(key, request.share_session_epoch, connection)
            if request.share_session_epoch == FINAL_EPOCH:
                return ShareRequest(key, acknowledgements, None)
        before = len(session.partitions)
        added = dict.fromkeys((at for at in wanted if at not in session.partitions), True)
        session.partitions |= added
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.partitions.pop(SessionPartition(forgotten.topic_id, index), None)
        self.partition_count += len(session.partitions) - before
        return ShareRequest(key, acknowledgements, session, added)

    def _check_room(
        self, before: ShareSession | None, wanted: list[SessionPartition], request: ShareFetchRequest
    ) -> None:
        """Limits the partitions of a session: each request looks at all of them. Raises KafkaError."""
        is_opening = request.share_session_epoch == OPENING_EPOCH
        if before is not None and not is_opening and all(map(before.partitions.__contains__, wanted)):
            return  # nearly all requests
        had = len(before.partitions) if before is not None else 0
        kept = before.partitions if before is not None and not is_opening else {}
        added = {at for at in wanted if at not in kept}
        count = len(kept) + len(added) - _forgotten(request, kept, added)
        if count > self._partitions_max:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"a share session of {count} partitions is larger than group.share.max.session.partitions "
                f"({self._partitions_max}); raise that, or spread the partitions over more members",
            )
        if count > had and self.partition_count + count - had > PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"share sessions have {self.partition_count} of {PARTITIONS_MAX} partitions already",
            )

    def acknowledge(self, request: ShareAcknowledgeRequest, connection: Hashable) -> ShareRequest:
        """Raises KafkaError with the code to answer with; then nothing has changed."""
        key, epoch = _key_of(request), request.share_session_epoch
        if epoch == OPENING_EPOCH:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "only ShareFetch can open a share session"
            )
        session = self._continue(key, epoch, connection)
        return ShareRequest(key, _acknowledgements(request), None if epoch == FINAL_EPOCH else session)

    def members_on(self, connection: Hashable) -> list[SessionKey]:
        """The members whose sessions end with this connection."""
        return list(self._by_connection.get(connection, ()))

    def connection_closed(self, connection: Hashable) -> list[SessionKey]:
        """End the sessions of a connection. Returns the members whose records have to be released."""
        ended = list(self._by_connection.get(connection, {}).values())
        for session in ended:
            self._end(session)
        return [session.key for session in ended]

    def _open(self, key: SessionKey, connection: Hashable) -> ShareSession:
        before = self._sessions.get(key)
        if before is None and len(self._sessions) >= self._sessions_max:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"there are {self._sessions_max} share sessions already (group.share.max.share.sessions)",
            )
        if before is not None:
            self._end(before)
        session = self._sessions[key] = ShareSession(key, connection)
        self._by_group[key.group_id] += 1
        self._by_connection.setdefault(connection, {})[key] = session
        return session

    def _continue(self, key: SessionKey, epoch: int, connection: Hashable) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {key.member_id!r} has no share session here"
            )
        if epoch == FINAL_EPOCH:
            self._end(session)
            return session
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"epoch {epoch} came where {session.epoch} is the next of this share session",
            )
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        if session.connection != connection:
            self._forget_connection(session)
            session.connection = connection
            self._by_connection.setdefault(connection, {})[key] = session
        return session

    def _end(self, session: ShareSession) -> None:
        session.has_ended = True
        self.partition_count -= len(session.partitions)
        del self._sessions[session.key]
        self._by_group[session.key.group_id] -= 1
        if not self._by_group[session.key.group_id]:
            del self._by_group[session.key.group_id]
        self._forget_connection(session)

    def _forget_connection(self, session: ShareSession) -> None:
        mine = self._by_connection[session.connection]
        del mine[session.key]
        if not mine:
            del self._by_connection[session.connection]


def _forgotten(
    request: ShareFetchRequest, kept: Collection[SessionPartition], added: Collection[SessionPartition]
) -> int:
    """The number of partitions that the request removes from the session."""
    named = {
        SessionPartition(topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    }
    return sum(at in kept or at in added for at in named)


def _key_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> SessionKey:
    if request.group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names no group")
    member_id = request.member_id or ""
    if not 1 <= len(member_id) <= MEMBER_ID_CHARACTERS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a member id has 1 to {MEMBER_ID_CHARACTERS_MAX} characters"
        )
    return SessionKey(request.group_id, member_id)


def _acknowledgements(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Acknowledgements:
    """The acknowledgements by partition. A client may name a topic several times in one request."""
    found: Acknowledgements = {}
    for topic in request.topics:
        partitions: Iterable[FetchPartition | AcknowledgePartition] = topic.partitions
        for partition in partitions:
            if partition.acknowledgement_batches:
                at = SessionPartition(topic.topic_id, partition.partition_index)
                found.setdefault(at, []).extend(partition.acknowledgement_batches)
    return found
