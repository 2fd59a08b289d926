"""A small machine for tests of the runtime: it adds numbers up, has timers, and fails where a test wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from forebay.broker.coordinators.runtime import Coordinator
from forebay.broker.node import Node
from forebay.core.step import Now, RequestInfo, StateRecord, Step
from forebay.errors import ErrorCode
from forebay.wire.fields import Request, Response
from forebay.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

TOPIC = "__tally"
KEY = "the tally"


class Broken(Exception):
    """A mistake in a machine."""


@dataclass
class Faults:
    """What goes wrong, and what has happened; shared by all machines of a test."""

    makes_to_fail: int = 0
    loads_to_fail: int = 0
    timers: list[tuple[int, str]] = field(default_factory=list)
    """What each machine sets when it is loaded: after how many ms, and what to add; "boom" raises."""
    machines: int = 0


class Tally:
    def __init__(self, faults: Faults) -> None:
        if faults.makes_to_fail:
            faults.makes_to_fail -= 1
            raise Broken("cannot be made")
        self.faults = faults
        self.numbers: list[bytes] = []
        """What has been replayed."""
        self.offsets: list[int] = []
        """Where the runtime said that they are in the log."""
        self.half_done = False
        self._timers: list[tuple[int, str]] = []
        faults.machines += 1

    def replay(self, record: StateRecord) -> None:
        if record.value == b"not a number":
            raise Broken("cannot be replayed")
        self.numbers.append(record.value or b"")
        self.offsets.append(record.offset)

    def loaded(self, now: Now) -> Step:
        if self.faults.loads_to_fail:
            self.faults.loads_to_fail -= 1
            raise Broken("cannot be loaded")
        self._timers = sorted((now.ms + ms, text) for ms, text in self.faults.timers)
        return self._done(Step())

    def tick(self, now: Now) -> Step:
        step = Step()
        if self._timers and self._timers[0][0] <= now.ms:
            _, text = self._timers.pop(0)
            self.half_done = True
            if text == "boom":
                raise Broken("cannot tick")
            step.records.append(_record(text))
            self.half_done = False
        return self._done(step)

    def add(self, ticket: Any, text: str) -> Step:
        return self._done(
            Step(
                records=[_record(text)],
                replies=[(ticket, HeartbeatResponse(throttle_time_ms=len(self.numbers) + 1))],
            )
        )

    def wait(self, _ticket: Any) -> Step:
        """Somebody waits for something that never comes."""
        return self._done(Step())

    def fail(self, _ticket: Any) -> Step:
        self.half_done = True
        raise Broken("cannot do it")

    def _done(self, step: Step) -> Step:
        step.deadline_ms = self._timers[0][0] if self._timers else None
        return step


def _record(text: str) -> StateRecord:
    return StateRecord(text.encode(), text.encode())


def _failure(_request: Request, _info: RequestInfo, code: ErrorCode) -> Response:
    return HeartbeatResponse(error_code=code)


class Tallies:
    """The coordinator of tallies on a broker, and its clients."""

    def __init__(self, broker: Node, faults: Faults, partitions: int = 1) -> None:
        self.faults = faults
        self.coordinator = Coordinator[Tally](
            broker.coordinators.host,
            topic=TOPIC,
            partitions=partitions,
            configs={"cleanup.policy": "compact"},
            make=lambda _: Tally(faults),
            failure=_failure,
            perform=lambda _: None,
        )
        broker.metadata.listen(lambda _before, _after: self.coordinator.follow())
        broker.assignment.opened.listen(self.coordinator.follow)

    async def ask(self, operation: Callable[[Tally, Any], Step]) -> HeartbeatResponse:
        response: HeartbeatResponse = await self.coordinator.ask(
            KEY, HeartbeatRequest(), RequestInfo(0), operation
        )
        return response

    async def add(self, text: str) -> int:
        return (await self.ask(lambda machine, ticket: machine.add(ticket, text))).error_code

    @property
    def machine(self) -> Tally | None:
        shard = self.coordinator.running(0)
        return None if shard is None else shard.machine
