"""Requests that wait for replicas: acks=all and DeleteRecords for an offset, refusals for a fetch.

An acknowledgement waits for the high watermark to reach the end of the log as it was after the append. Each
is a value in a queue, and the part that takes it out completes it: the write cycle when it is committed or
has timed out, the partition when its leadership ends. Appends come in the order of the log, so what is
committed is always at the front.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from forebay.core.partition.leadership import FetchMark, LeaderProof
from forebay.errors import ErrorCode, KafkaError

_REFUSALS_MAX = 1_000


class Waiting(Protocol):
    """Something that waits for an offset, up to a time of the event loop."""

    @property
    def next_offset(self) -> int: ...
    @property
    def deadline_s(self) -> float: ...


W = TypeVar("W", bound=Waiting)


class PendingQueue(Generic[W]):
    """Waiting items, in the order of their offsets. An item that is taken out waits no more."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[W] | None = None
        """Made with the first item: an empty one takes 600 bytes, and most partitions never need it."""

    def __len__(self) -> int:
        return 0 if self._waiting is None else len(self._waiting)

    def add(self, item: W) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(item)

    def take_reached(self, offset: int) -> list[W]:
        """Take out what waited for this offset or one before it."""
        waiting = self._waiting
        reached: list[W] = []
        while waiting and waiting[0].next_offset <= offset:
            reached.append(waiting.popleft())
        return reached

    def take_expired(self, now_s: float) -> list[W]:
        """Take out what has waited for too long."""
        waiting = self._waiting or ()
        late = [item for item in waiting if item.deadline_s <= now_s]
        if late:
            self._waiting = deque(item for item in waiting if item.deadline_s > now_s)
        return late

    def take_all(self) -> Sequence[W]:
        waiting, self._waiting = self._waiting, None
        return waiting or ()


# -- acks=all ------------------------------------------------------------------------------------------


class PendingResult(Protocol):
    """The result of one append of a request."""

    def fail(self, error: KafkaError) -> None: ...


class PendingRequest(Protocol):
    """A request whose response is sent once all of its acks are complete."""

    def fail(self, result: PendingResult, error: KafkaError) -> None:
        """One of its appends has failed. Does not raise."""

    def complete_one(self) -> None:
        """One more ack is complete. Does not raise."""


class PendingAck(NamedTuple):
    """One append of a request with acks=all."""

    next_offset: int
    """The end of the log after the append: what is below it has to be committed."""
    deadline_s: float
    request: PendingRequest
    result: PendingResult


def complete_ack(request: PendingRequest, result: PendingResult, error: KafkaError | None) -> None:
    """One append of a request is as safe as acks=all asks for, or has failed."""
    if error is not None:
        request.fail(result, error)
    request.complete_one()


def not_replicated(partition: object, code: ErrorCode) -> KafkaError:
    return KafkaError(code, f"not all in-sync replicas of {partition} are known to have the batch")


class PendingAcks(PendingQueue[PendingAck]):
    __slots__ = ()

    def fail(self, partition: object, code: ErrorCode) -> None:
        """This broker can no longer know what becomes of them."""
        for ack in self.take_all():
            complete_ack(ack.request, ack.result, not_replicated(partition, code))


# -- refusals ------------------------------------------------------------------------------------------


class PendingRefusal(NamedTuple):
    """A batch whose result is an error that clients take as final, if this broker led when it came."""

    deadline_s: float
    request: PendingRequest
    result: PendingResult
    proof: LeaderProof


class PendingRefusals(list[PendingRefusal]):
    """Refusals of one leader epoch: each is complete when all who could lead instead are seen to follow."""

    @property
    def is_full(self) -> bool:
        return len(self) >= _REFUSALS_MAX

    def fetched(self, node: int, fetch: FetchMark) -> bool:
        """A follower has fetched in this epoch; whether another fetch of it is needed."""
        again = [refusal.proof.fetched(node, fetch) for refusal in self]
        self._complete_proven()
        return any(again)

    def keep(self, electable: frozenset[int]) -> None:
        """The in-sync set has changed: only these may lead next."""
        for refusal in self:
            refusal.proof.keep(electable)
        self._complete_proven()

    def expire(self, now_s: float, error: KafkaError) -> None:
        """Answer those that have waited for too long with this error."""
        self._complete([refusal for refusal in self if refusal.deadline_s <= now_s], error)

    def fail(self, error: KafkaError) -> None:
        """Answer all with this error: it will never be known."""
        self._complete(list(self), error)

    def _complete_proven(self) -> None:
        self._complete([refusal for refusal in self if refusal.proof.is_complete], None)

    def _complete(self, refusals: list[PendingRefusal], error: KafkaError | None) -> None:
        for refusal in refusals:
            self.remove(refusal)
        for refusal in refusals:
            complete_ack(refusal.request, refusal.result, error)


# -- deletions -----------------------------------------------------------------------------------------


class PendingDeletion(NamedTuple):
    """A DeleteRecords request that waits until the in-sync replicas start at its offset, too."""

    next_offset: int
    deadline_s: float
    done: Callable[[ErrorCode], None]


class PendingDeletions(PendingQueue[PendingDeletion]):
    __slots__ = ()

    def wait(self, offset: int, deadline_s: float, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once every in-sync replica starts at `offset`, or this can no longer be known."""
        self.add(PendingDeletion(offset, deadline_s, done))

    def complete(self, low_watermark: int) -> None:
        """Answer those for which the in-sync replicas have deleted enough."""
        for deletion in self.take_reached(low_watermark):
            deletion.done(ErrorCode.NONE)

    def expire(self, now_s: float) -> None:
        """Answer those that have waited for too long. What they deleted stays deleted."""
        for deletion in self.take_expired(now_s):
            deletion.done(ErrorCode.REQUEST_TIMED_OUT)

    def fail(self, code: ErrorCode) -> None:
        """This broker can no longer know what the replicas have deleted."""
        for deletion in self.take_all():
            deletion.done(code)
