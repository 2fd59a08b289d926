"""Decides which refusals get a line in the audit log, and counts the others.

Each sender, that is a principal at an address (IPv6: a /64), may cause a burst of lines, and then some each
second. A principal at many addresses may cause a few times as many. So a noisy sender neither fills the log
nor hides the refusals of others. Omitted lines are counted by sender and API, with some of the requested
resources: a sender that hides one request among many is still noticed.

The memory for this is bounded. The count of an evicted sender is added to its principal's, and that of a
principal to the rest.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple

from forebay.core.security.networks import network_of

PRINCIPAL_SHARES = 4
"""The rate of a principal, at all its addresses together, as a multiple of a sender's rate."""
SAMPLES_MAX = 20
"""The number of different resources that are remembered of omitted lines."""


class RefusalLimits(NamedTuple):
    per_second: float
    burst: int
    senders_max: int


class LeftOut(NamedTuple):
    principal: str
    """Empty: several."""
    network: str
    """Empty: several."""
    apis: Counter[str]
    needs: tuple[str, ...]
    """Some of the requested resources."""


class _Sender:
    __slots__ = ("apis", "at_s", "needs", "tokens")

    def __init__(self, tokens: float, now_s: float) -> None:
        self.tokens = tokens
        self.at_s = now_s
        self.apis: Counter[str] = Counter()
        self.needs: dict[str, None] = {}

    def has_room(self, per_second: float, burst: float, now_s: float) -> bool:
        self.tokens = min(self.tokens + max(now_s - self.at_s, 0.0) * per_second, burst)
        self.at_s = now_s
        return self.tokens >= 1

    def leave_out(self, apis: Counter[str], needs: tuple[str, ...]) -> None:
        self.apis += apis
        for each in needs:
            if len(self.needs) < SAMPLES_MAX:
                self.needs[each] = None

    def take(self, principal: str, network: str) -> LeftOut:
        found = LeftOut(principal, network, self.apis, tuple(self.needs))
        self.apis, self.needs = Counter(), {}
        return found


class Refusals:
    def __init__(self) -> None:
        self._senders: OrderedDict[tuple[str, str], _Sender] = OrderedDict()
        self._principals: OrderedDict[str, _Sender] = OrderedDict()
        self._others = _Sender(0, 0)

    def __len__(self) -> int:
        return len(self._senders) + len(self._principals)

    def admit(
        self, principal: str, host: str, api: str, need: str, limits: RefusalLimits, now_s: float
    ) -> LeftOut | None:
        """None if it gets no line; else what was omitted before from the same sender."""
        network = network_of(host)
        sender = self._sender(principal, network, limits, now_s)
        whole = self._principals[principal]
        shares = PRINCIPAL_SHARES
        if sender.has_room(limits.per_second, limits.burst, now_s) and whole.has_room(
            limits.per_second * shares, limits.burst * shares, now_s
        ):
            sender.tokens -= 1
            whole.tokens -= 1
            return sender.take(principal, network)
        sender.apis[api] += 1
        if need and len(sender.needs) < SAMPLES_MAX:
            sender.needs[need] = None
        return None

    def untold(self) -> list[LeftOut]:
        """All omissions that no line has reported yet, largest first. They then count as reported."""
        found = [sender.take(*key) for key, sender in self._senders.items() if sender.apis]
        found += [whole.take(principal, "") for principal, whole in self._principals.items() if whole.apis]
        if self._others.apis:
            found.append(self._others.take("", ""))
        return sorted(found, key=lambda each: -each.apis.total())

    def _sender(self, principal: str, network: str, limits: RefusalLimits, now_s: float) -> _Sender:
        key = (principal, network)
        sender = self._senders.get(key)
        if sender is None:
            sender = self._senders[key] = _Sender(limits.burst, now_s)
        if principal not in self._principals:
            self._principals[principal] = _Sender(limits.burst * PRINCIPAL_SHARES, now_s)
        self._senders.move_to_end(key)
        self._principals.move_to_end(principal)
        while len(self._senders) > limits.senders_max:
            (gone, where), forgotten = self._senders.popitem(last=False)
            _, _, apis, needs = forgotten.take(gone, where)
            self._principals.get(gone, self._others).leave_out(apis, needs)
        while len(self._principals) > limits.senders_max:
            gone, whole = self._principals.popitem(last=False)
            _, _, apis, needs = whole.take(gone, "")
            self._others.leave_out(apis, needs)
        return sender
