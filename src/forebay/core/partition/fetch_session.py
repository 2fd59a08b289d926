"""Incremental fetch sessions (KIP-227): a client names its partitions once and then sends only what changed.

The broker remembers, per session, the client's position in each partition and what the client was last told
about it. A request adds, changes and forgets partitions; an answer leaves out those with nothing new. Epochs
number the requests of a session, so that a lost or repeated one is noticed.

A session also spares the broker from looking at every partition for every request. A target that was read to
its end can be skipped (`skip_until_changed`) by a caller that will call `changed` when anything happens to
it. A caller that never skips targets gets all of them every time.

Sessions are a cache: there are `slots_max` of them, with `partitions_max` partitions. The least recently used
one is evicted once it has been unused for `eviction_ms`, and a follower's session may replace a consumer's at
any time. If there are too many partitions, the session with the most is evicted first: one that is unused, or
that has more than twice as many as the one that needs room. A client without a session names all its
partitions in each request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator

from forebay.errors import ErrorCode
from forebay.wire.fields import changed
from forebay.wire.messages.fetch import FetchPartition, FetchRequest

NO_SESSION = 0
FULL_FETCH_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
EVICTION_MS = 120_000
PARTITIONS_MAX = 200_000
_NEW_ID_ATTEMPTS = 100
_IN_A_STEP = 200
_REPEATS_MAX = 50
"""Requests with this many partitions, as most are, need not be searched for repeats."""

TopicKey = str | bytes
"""A topic's name, or from version 13 of Fetch on its id."""


class FetchTarget:
    """One partition that a client fetches from."""

    __slots__ = ("high_watermark", "log_start_offset", "request", "session", "topic")

    def __init__(self, topic: TopicKey, request: FetchPartition, session: FetchSession | None = None) -> None:
        self.topic = topic
        self.request = request
        """The client's last request: offset, epochs, size."""
        self.session = session
        """None outside of sessions, and once the client has forgotten the partition."""
        self.high_watermark = -1
        self.log_start_offset = -1
        """The value that the client was last told; -1 makes the next response include it."""

    def changed(self, *, wake: bool = True) -> bool:
        """Make the next request read this target again; False if its session is closed.

        With `wake` a waiting request of the session is answered at once.
        """
        session = self.session
        if session is None or session.closed:
            return False
        session.unsettled[self] = None
        if wake and session.on_changed is not None:
            session.on_changed()
        return True

    def skip_until_changed(self) -> None:
        """Leave this target out of later requests until it has changed."""
        if self.session is not None:
            self.session.unsettled.pop(self, None)


class FetchSession:
    __slots__ = (
        "by_id",
        "closed",
        "epoch",
        "id",
        "last_used_ms",
        "on_changed",
        "privileged",
        "targets",
        "unsettled",
    )

    def __init__(self, session_id: int, *, by_id: bool, privileged: bool, now_ms: int) -> None:
        self.id = session_id
        self.by_id = by_id
        """True if topics are named by id."""
        self.privileged = privileged
        """True for a follower's session, which has precedence over a consumer's."""
        self.epoch = 1
        """The epoch of the next request."""
        self.last_used_ms = now_ms
        self.closed = False
        self.on_changed: Callable[[], None] | None = None
        """Called when a target has changed, for a waiting request."""
        self.targets: dict[tuple[TopicKey, int], FetchTarget] = {}
        self.unsettled: dict[FetchTarget, None] = {}
        """The targets to read; the one that returned records last is at the end."""

    def want(self, topic: TopicKey, request: FetchPartition) -> None:
        key = (topic, request.partition)
        target = self.targets.get(key)
        if target is None:
            target = self.targets[key] = FetchTarget(topic, request, self)
        else:
            if target.request.current_leader_epoch != request.current_leader_epoch:
                target.high_watermark = -1  # what came for another term may not have been taken
            target.request = request
        self.unsettled[target] = None

    def forget(self, topic: TopicKey, partition: int) -> None:
        target = self.targets.pop((topic, partition), None)
        if target is not None:
            self.unsettled.pop(target, None)
            target.session = None

    def rotate(self, target: FetchTarget) -> None:
        unsettled = self.unsettled
        if len(unsettled) > 1 and target in unsettled:
            del unsettled[target]
            unsettled[target] = None


class FetchContext:
    """One Fetch request, seen through its session."""

    __slots__ = ("error_code", "incremental", "session", "session_id", "targets")

    def __init__(
        self,
        targets: list[FetchTarget],
        session: FetchSession | None = None,
        incremental: bool = False,
        error_code: int = ErrorCode.NONE,
    ) -> None:
        self.targets = targets
        """The targets to read, in this order."""
        self.session = session
        self.session_id = NO_SESSION if session is None else session.id
        """The session id to answer with."""
        self.incremental = incremental
        self.error_code = error_code
        """The error of the request as a whole; then there is nothing to read."""

    def must_answer(
        self,
        target: FetchTarget,
        high_watermark: int,
        log_start_offset: int,
        size: int,
        error_code: int = ErrorCode.NONE,
        forced: bool = False,
    ) -> bool:
        """True if the response has to include this partition. Notes what the client then knows.

        `forced`: the client must be told even if nothing else has changed, for example of a diverging epoch.
        """
        session = target.session
        if session is None:
            return True
        told = target.high_watermark == high_watermark and target.log_start_offset == log_start_offset
        target.log_start_offset = log_start_offset
        # After an error the client counts as told nothing, so the partition is included when it is well
        # again. The same holds with a diverging epoch: the client cannot use positions of another log.
        target.high_watermark = -1 if error_code or forced else high_watermark
        if size:
            session.rotate(target)
            return True
        return not told or forced or bool(error_code) or not self.incremental


class FetchSessions:
    def __init__(
        self,
        slots_max: int,
        *,
        new_id: Callable[[], int],
        eviction_ms: int = EVICTION_MS,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        """Returns a random number from 1 to 2**31-1 that is hard to guess."""
        self._partitions_max = partitions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The least recently used first."""
        self.partition_count = 0
        """Of all sessions together."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def resolve(
        self, request: FetchRequest, *, by_id: bool, now_ms: int, privileged: bool = False
    ) -> FetchContext:
        """Find the targets of a request. Never raises: a session's error is in the context."""
        epoch = request.session_epoch
        if epoch not in (FULL_FETCH_EPOCH, FINAL_EPOCH):
            return self._incremental(request, by_id, now_ms)
        if request.session_id != NO_SESSION:
            self.close(self._sessions.get(request.session_id))
        if epoch == FULL_FETCH_EPOCH and self._slots_max:
            session = self._open(request, by_id, privileged, now_ms)
            if session is not None:
                return FetchContext(list(session.unsettled), session)
        return FetchContext(_sessionless(request, by_id))

    def resolve_steps(
        self, request: FetchRequest, *, by_id: bool, now_ms: int
    ) -> Generator[None, None, FetchContext]:
        """Like `resolve`, in steps, for a consumer's request that names very many partitions."""
        if request.session_epoch in (FULL_FETCH_EPOCH, FINAL_EPOCH):
            return (yield from self._open_in_steps(request, by_id, now_ms))
        session = self._sessions.get(request.session_id)
        if session is not None and session.epoch == request.session_epoch and session.by_id == by_id:
            yield from self._update_in_steps(session, request)
            if not session.closed and not self._make_room(0, session.privileged, now_ms, session):
                self.close(session)
        return self._incremental(changed(request, topics=[], forgotten_topics_data=[]), by_id, now_ms)

    def _open_in_steps(
        self, request: FetchRequest, by_id: bool, now_ms: int
    ) -> Generator[None, None, FetchContext]:
        if request.session_id != NO_SESSION:
            self.close(self._sessions.get(request.session_id))
        session = FetchSession(self._unused_id(), by_id=by_id, privileged=False, now_ms=now_ms)
        is_kept = False
        try:
            yield from self._update_in_steps(session, request)
            is_kept = request.session_epoch == FULL_FETCH_EPOCH and self._has_room_for(session, now_ms)
        finally:
            if not is_kept:
                session.closed = True
                self.partition_count -= len(session.targets)
        if is_kept:
            self._sessions[session.id] = session
        return FetchContext(list(session.unsettled), session if is_kept else None)

    def _has_room_for(self, session: FetchSession, now_ms: int) -> bool:
        """True if a new session of a consumer, whose partitions are counted, may be kept."""
        if session.id == NO_SESSION or session.id in self._sessions or not session.targets:
            return False
        if not self._slots_max or not self._make_room(0, False, now_ms, session):
            return False
        return len(self._sessions) < self._slots_max or self._evict(False, now_ms)

    def _update_in_steps(self, session: FetchSession, request: FetchRequest) -> Iterator[None]:
        """Like `_update`. Ends early if the session is closed meanwhile."""
        counted = len(session.targets)
        for number, _ in enumerate(_changes(session, request), start=1):
            if number % _IN_A_STEP:
                continue
            self.partition_count += len(session.targets) - counted
            counted = len(session.targets)
            yield
            if session.closed:
                return
        self.partition_count += len(session.targets) - counted

    def _incremental(self, request: FetchRequest, by_id: bool, now_ms: int) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if request.topics or request.forgotten_topics_data:
            self._update(session, request)
            if not session.targets:
                self.close(session)
                return FetchContext([])
            session.last_used_ms = now_ms
            if not self._make_room(0, session.privileged, now_ms, session):
                self.close(session)
                return FetchContext([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)
        return FetchContext(list(session.unsettled), session, True)

    def _update(self, session: FetchSession, request: FetchRequest) -> None:
        before = len(session.targets)
        by_id = session.by_id
        for topic in request.topics:
            key = topic.topic_id if by_id else topic.topic
            for partition in topic.partitions:
                session.want(key, partition)
        for gone in request.forgotten_topics_data:
            key = gone.topic_id if by_id else gone.topic
            for index in gone.partitions:
                session.forget(key, index)
        self.partition_count += len(session.targets) - before

    def _open(self, request: FetchRequest, by_id: bool, privileged: bool, now_ms: int) -> FetchSession | None:
        """A new session; None if there is no room for it or nothing in it."""
        wanted = sum(len(topic.partitions) for topic in request.topics)
        if not 0 < wanted <= self._partitions_max or not self._make_room(wanted, privileged, now_ms):
            return None
        if len(self._sessions) >= self._slots_max and not self._evict(privileged, now_ms):
            return None
        session_id = self._unused_id()
        if session_id == NO_SESSION:
            return None
        session = FetchSession(session_id, by_id=by_id, privileged=privileged, now_ms=now_ms)
        self._sessions[session_id] = session
        self._update(session, request)
        return session

    def _unused_id(self) -> int:
        for _ in range(_NEW_ID_ATTEMPTS):
            session_id = self._new_id()
            if session_id not in self._sessions:
                return session_id
        return NO_SESSION

    def _evict(self, privileged: bool, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms <= self._eviction_ms:
            if not privileged:
                return False
            consumers = (session for session in self._sessions.values() if not session.privileged)
            oldest = next(consumers, oldest)
            if oldest.privileged:
                return False
        self.close(oldest)
        return True

    def _make_room(self, wanted: int, privileged: bool, now_ms: int, own: FetchSession | None = None) -> bool:
        """Make room for this many more partitions, if need be by closing sessions; False if there is none."""
        size = wanted if own is None else len(own.targets)
        while self.partition_count + wanted > self._partitions_max:
            largest = max(
                (
                    session
                    for session in self._sessions.values()
                    if now_ms - session.last_used_ms > self._eviction_ms
                    or (not session.privileged and (privileged or len(session.targets) > 2 * size))
                ),
                key=lambda session: len(session.targets),
                default=None,
            )
            if largest is None:
                return False
            self.close(largest)
        return True

    def close(self, session: FetchSession | None) -> None:
        """Close a session; a request that continues it gets the error to begin a new one."""
        if session is None or session.closed:
            return
        session.closed = True
        self.partition_count -= len(session.targets)
        session.targets, session.unsettled = {}, {}  # no cycle keeps them until a collector comes
        del self._sessions[session.id]


def _changes(session: FetchSession, request: FetchRequest) -> Iterator[None]:
    """Make the changes that a request makes to its session, one at a time."""
    by_id = session.by_id
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            session.want(key, partition)
            yield
    for gone in request.forgotten_topics_data:
        key = gone.topic_id if by_id else gone.topic
        for index in gone.partitions:
            session.forget(key, index)
            yield


def _sessionless(request: FetchRequest, by_id: bool) -> list[FetchTarget]:
    found = _named(request, by_id)
    if len(found) <= _REPEATS_MAX:
        return found
    # As in a session, a partition that is named again and again is read once.
    return list({(target.topic, target.request.partition): target for target in found}.values())


def _named(request: FetchRequest, by_id: bool) -> list[FetchTarget]:
    if by_id:
        return [
            FetchTarget(topic.topic_id, wanted) for topic in request.topics for wanted in topic.partitions
        ]
    return [FetchTarget(topic.topic, wanted) for topic in request.topics for wanted in topic.partitions]
