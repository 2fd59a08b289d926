"""The last events of a broker that people want to see on one line of time: changes that administrators made,
partitions that it began to lead, brokers that came and went, other controllers.

Elections come in crowds, after the death of a broker for example: those of one second are one event. Readers
ask for what came after the last id that they know. Ids grow with the clock, so that they also grow across
restarts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.registration import BrokerRegistration

CHANGE, ELECTION, BROKER, CONTROLLER = "change", "election", "broker", "controller"
_TOGETHER_MS = 1000
_NAMED_MAX = 5


class RecentEvent(NamedTuple):
    id: int
    at_ms: int
    kind: str
    what: str
    principal: str = ""
    client: str = ""
    api: str = ""
    result: str = ""
    partitions: int = 0


class RecentEvents:
    def __init__(self, kept_max: int, now_ms: Callable[[], int]) -> None:
        self._events: deque[RecentEvent] = deque(maxlen=kept_max)
        self._now_ms = now_ms
        self._last_id = 0
        self._elected: list[str] = []
        self._elected_count = 0
        self._elected_at_ms = 0

    def after(self, id: int) -> list[RecentEvent]:
        """Those with a larger id, the oldest first."""
        self._end_elections(self._now_ms())
        return [each for each in self._events if each.id > id]

    def changed(self, facts: Mapping[str, object]) -> None:
        """An administrative request was answered, with the facts that the audit log has."""
        principal, client, api, what, result = (
            str(facts[name]) for name in ("principal", "client", "api", "what", "result")
        )
        self._add(CHANGE, what, principal=principal, client=client, api=api, result=result)

    def elected(self, topic: str, index: int) -> None:
        """This broker begins to lead a partition that had another leader, or another term, before."""
        now_ms = self._now_ms()
        self._end_elections(now_ms)
        if not self._elected:
            self._elected_at_ms = now_ms
        if len(self._elected) < _NAMED_MAX:
            self._elected.append(f"{topic}-{index}")
        self._elected_count += 1

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Note brokers that came or went, and another controller."""
        if after.brokers is not before.brokers:
            for node in sorted(before.brokers.keys() - after.brokers.keys()):
                self._add(BROKER, f"broker {node} left")
            for node in sorted(after.brokers.keys() - before.brokers.keys()):
                self._add(BROKER, f"broker {node} joined")
            for node in sorted(_restarted(before.brokers, after.brokers)):
                self._add(BROKER, f"broker {node} was restarted")
        if after.controller != before.controller and after.controller >= 0:
            self._add(CONTROLLER, f"broker {after.controller} is the controller")

    def _end_elections(self, now_ms: int) -> None:
        if self._elected and not 0 <= now_ms - self._elected_at_ms < _TOGETHER_MS:
            names, count, at_ms = self._elected, self._elected_count, self._elected_at_ms
            self._elected, self._elected_count = [], 0
            more = count - len(names)
            what = ", ".join(names) + (f" and {more} more" if more else "")
            self._add(ELECTION, what, at_ms=at_ms, partitions=count)

    def _add(
        self,
        kind: str,
        what: str,
        *,
        principal: str = "",
        client: str = "",
        api: str = "",
        result: str = "",
        partitions: int = 0,
        at_ms: int | None = None,
    ) -> None:
        now_ms = self._now_ms()
        self._last_id = max(self._last_id + 1, now_ms)
        self._events.append(
            RecentEvent(
                self._last_id,
                now_ms if at_ms is None else at_ms,
                kind,
                what,
                principal,
                client,
                api,
                result,
                partitions,
            )
        )


def _restarted(before: Mapping[int, BrokerRegistration], after: Mapping[int, BrokerRegistration]) -> set[int]:
    """Brokers that are another process than before."""
    return {node for node in before.keys() & after.keys() if after[node].process != before[node].process}
