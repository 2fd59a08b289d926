"""The end of a librdkafka handle, which may hang in C code where nothing can interrupt it.

librdkafka 2.16 waits for ever in `close` when it gets its partitions while it leaves the group
(docs/decisions/0040-close-has-a-bound.md). So a handle ends in a daemon thread, and its owner waits for that
thread up to a limit. A handle that does not end in time is given up: it stays in memory, with its threads,
until the process exits. Python must not destroy it then, which would hang as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import confluent_kafka
from confluent_kafka import KafkaException

from forebay.client.errors import ClientError, kafka_errors
from forebay.errors import ConfigError, ForebayError

if TYPE_CHECKING:
    from confluent_kafka import ShareConsumer

log = logging.getLogger("forebay.client")


class Member(Protocol):
    """A consumer or a share consumer."""

    def close(self) -> None: ...


CLOSE_SECONDS = 30.0
"""The default bound of a close, as in Java's consumer."""
LEAVE_SECONDS = 5.0
"""How long a consumer whose librdkafka was given up tries to leave its group."""


def checked_close_seconds(seconds: float) -> float:
    if not seconds > 0:
        raise ConfigError(f"close_seconds={seconds}: write a number above 0")
    return seconds


class CallGuard:
    """Keeps calls of a handle and its end apart: librdkafka must not be used while it is destroyed.

    The owner notes that it is closed, then waits until the calls under way have ended. A call that begins
    later finds the note when it is inside.

    The thread that is inside may enter again, like a signal handler that closes what it interrupted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = 0

    @property
    def is_mine(self) -> bool:
        """True while the calling thread is inside."""
        return self._thread == threading.get_ident()

    @contextlib.contextmanager
    def inside(self) -> Iterator[bool]:
        if self.is_mine:
            yield True
            return
        with self._lock:
            self._thread = threading.get_ident()
            try:
                yield True
            finally:
                self._thread = 0

    def wait_until_free(self) -> None:
        """Returns when the calls that are under way have ended."""
        with self._lock:
            pass

    @contextlib.contextmanager
    def inside_if_free(self) -> Iterator[bool]:
        """Yields False, without waiting, while a thread is inside, even the calling one."""
        if not self._lock.acquire(blocking=False):
            yield False
            return
        self._thread = threading.get_ident()
        try:
            yield True
        finally:
            self._thread = 0
            self._lock.release()


class Ending:
    """The end of one handle, once, in a daemon thread.

    A program may forget to close the owner of the handle. Then this object vanishes with the owner, and ends
    the handle in the same way: the garbage collector would do it in any thread, even in the main one at exit.
    """

    _handle: object = None
    _thread: threading.Thread | None = None
    _started_s = 0.0

    def __init__(self, handle: object, unattended: Callable[[], object] = lambda: None) -> None:
        """`unattended`: ends the handle when its owner has vanished. It must not refer to the owner.

        A handle that nothing refers to afterwards is destroyed, in the same thread.
        """
        self._unattended = unattended
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._given_up = False
        self._handle = handle  # the last: `__del__` is called also when this constructor was interrupted

    def start(self, end: Callable[[], object] = lambda: None) -> None:
        """Start the end; does nothing if it has already begun."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, args=(end,), name="forebay-close", daemon=True)
            self._started_s = time.monotonic()
            thread.start()
            self._thread = thread

    def wait(self, seconds: float) -> bool:
        """True when the handle has ended. False when the time since its start is up: then it is given up.

        Raises what `end` raised; it may then be started again. May be interrupted (Ctrl-C) and called again:
        the thread continues.
        """
        left_s = max(0.0, self._started_s + seconds - time.monotonic())
        if not self._given_up and not self._ended.wait(left_s):
            self._given_up = True
            keep_for_ever(self._handle)
        failure, self._failure = self._failure, None
        if failure is not None:
            self._thread = None
            self._ended.clear()
            raise failure
        return self._ended.is_set()

    def _run(self, end: Callable[[], object]) -> None:
        try:
            end()
            self._handle = None
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ended.set()

    def __del__(self) -> None:
        if self._handle is None or self._thread is not None:
            return
        if not sys.is_finalizing():
            with contextlib.suppress(RuntimeError):  # no thread can be started any more
                self.start(self._unattended)
                return
        keep_for_ever(self._handle)


class MemberHandle:
    """librdkafka's member of a group: separates its calls from its end, which any thread may request."""

    def __init__(
        self, raw: Member, owner: str, seconds: float, close: Callable[[], object] | None = None
    ) -> None:
        """`owner`: the closed object, for messages. `seconds`: the time limit. `close`: its last call."""
        self._close = raw.close if close is None else close
        self._owner = owner
        self._seconds = seconds
        self._guard = CallGuard()
        self._ending = Ending(raw, self._close)
        self._has_left = False
        self.closed = False

    @contextlib.contextmanager
    def using(self) -> Iterator[None]:
        """Calls of librdkafka inside."""
        with self._guard.inside(), kafka_errors():
            self._check_open()
            yield

    @contextlib.contextmanager
    def using_if_free(self) -> Iterator[bool]:
        """Like `using`, or False if a call is already under way. Never waits."""
        with self._guard.inside_if_free() as is_free, kafka_errors():
            if is_free:
                self._check_open()
            yield is_free

    def close(self, leave: Callable[[], object]) -> bool:
        """Call `leave`, and close the handle. False if librdkafka was given up, the first time only."""
        if self._has_left:
            return True
        self.start_close(leave)
        is_ended = self._ending.wait(self._seconds)
        self._has_left = True
        return is_ended

    def start_close(self, leave: Callable[[], object]) -> None:
        """The first half of `close`, which does not wait."""
        is_inside = self._guard.is_mine  # a signal handler has interrupted a call
        self.closed = True
        self._ending.start(partial(self._end, leave, is_inside))

    def _end(self, leave: Callable[[], object], is_inside: bool) -> None:
        if not is_inside:
            self._guard.wait_until_free()  # calls that begin later find it closed
        with kafka_errors():
            try:
                leave()
            finally:
                self._close()
                self._has_left = True

    def _check_open(self) -> None:
        if self.closed:
            raise ClientError(f"the {self._owner} is closed", fatal=True)


def close_share_consumer(raw: ShareConsumer, seconds: float = CLOSE_SECONDS) -> bool:
    """Leave the group and close; False if librdkafka did not do it in time."""
    return share_handle(raw, "share consumer", seconds).close(lambda: None)


def share_handle(raw: ShareConsumer, owner: str, seconds: float) -> MemberHandle:
    return MemberHandle(raw, owner, seconds, partial(_unsubscribe_and_close, raw))


def _unsubscribe_and_close(raw: ShareConsumer) -> None:
    """librdkafka 2.16 hangs if it is closed between the answer with its partitions and the metadata that it
    then requests. Unsubscribing makes it forget those partitions, closing does not."""
    with contextlib.suppress(KafkaException, RuntimeError):  # after a fatal error, or on a closed one
        raw.unsubscribe()
    raw.close()


class ProducerHandle:
    """librdkafka's producer, until it is destroyed.

    Any thread may be inside one of its calls, and keeps it alive for that time. So destroying it just drops
    the reference.
    """

    def __init__(self, raw: confluent_kafka.Producer) -> None:
        self._raw: confluent_kafka.Producer | None = raw
        self._ending = Ending(raw)

    @property
    def raw(self) -> confluent_kafka.Producer:
        raw = self._raw
        if raw is None:
            raise ClientError("the producer is closed", fatal=True)
        return raw

    @property
    def is_destroyed(self) -> bool:
        return self._raw is None

    def destroy(self, seconds: float) -> None:
        """Destroy it. Messages that are still queued are discarded."""
        if self._raw is None:
            return
        self._raw = None
        self._ending.start()
        if not self._ending.wait(seconds):
            log.warning(
                "librdkafka has not destroyed its producer after %g s, and is left alone with it until this "
                "process ends. Everything that was to be delivered has been delivered or reported before",
                seconds,
            )


def leave_in_time(settings: Mapping[str, Any], group: str, member_id: str | None) -> None:
    """Take a member whose librdkafka was given up out of its consumer group."""
    if member_id is None or "group.instance.id" in settings:
        return  # it never joined, or should keep its partitions over a restart

    def leave() -> None:
        from forebay.client.leaving import leave_group  # imports the protocol, which nothing else needs here

        try:
            leave_group(settings, group, member_id)
        except ForebayError as error:
            log.warning("group %r keeps its member until its session times out: %s", group, error)

    thread = threading.Thread(target=leave, name="forebay-leave", daemon=True)
    thread.start()
    thread.join(LEAVE_SECONDS)


def keep_for_ever(handle: object) -> None:
    """Add one reference more than there are, so that Python never destroys the handle."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
