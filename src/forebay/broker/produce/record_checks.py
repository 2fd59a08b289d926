"""Large batches whose records have to be read before they are appended, read in a thread.

`core/partition/record_rules.py` says which those are. The queue of waiting requests needs no limit: a
connection is not read while its request waits, so each has at most one request here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeAlias

from forebay.broker.partition.partition import Partition
from forebay.broker.yielding.pace import Pace, Stopped
from forebay.clock import Clock
from forebay.core.partition.batch_rules import AppendPolicy
from forebay.core.partition.record_rules import Examined, examine
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import read_header

if TYPE_CHECKING:
    from forebay.broker.partition.waiting_messages import FindKeys

log = logging.getLogger(__name__)

Outcome: TypeAlias = Examined | KafkaError
"""The batch as its topic stores it, or why it does not."""


class Examiner:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, pool: Executor) -> None:
        self._loop = loop
        self._clock = clock
        self._pool = pool
        self._pace = Pace(clock)
        self._closed = False

    def submit(self, batch: memoryview, partition: Partition, done: Callable[[Outcome], None]) -> None:
        """Examine a batch, which must not change until then; then call `done` on the loop."""
        policy, waiting = partition.policy, partition.delayed_messages
        find_keys = None if waiting is None else waiting.lookup_for(policy, read_header(batch).record_count)
        if not self._closed:
            self._pool.submit(self._run, batch, policy, find_keys, done)

    def close(self) -> None:
        """Stop the thread; `done` is not called any more. Blocks until the thread has ended."""
        self._closed = self._pace.stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(
        self,
        batch: memoryview,
        policy: AppendPolicy,
        find_keys: FindKeys | None,
        done: Callable[[Outcome], None],
    ) -> None:
        """In a thread."""
        self._loop.call_soon_threadsafe(self._tell, done, self._examine(batch, policy, find_keys))

    def _examine(self, batch: memoryview, policy: AppendPolicy, find_keys: FindKeys | None) -> Outcome:
        try:
            examined = examine(batch, policy, self._clock.now_ms(), self._pace.spend)
            if examined.delayed is None or find_keys is None:
                return examined
            replaces = find_keys(examined.delayed.scheduled)
            return examined._replace(delayed=examined.delayed._replace(replaces=replaces))
        except KafkaError as error:
            return error
        except Stopped:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is being stopped")
        except Exception as error:
            log.exception("a batch could not be examined")
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the batch could not be examined: {error}")

    def _tell(self, done: Callable[[Outcome], None], outcome: Outcome) -> None:
        if not self._closed:
            done(outcome)
