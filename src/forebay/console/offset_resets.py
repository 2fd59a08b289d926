"""Resets of offsets, of groups of any kind: what a person chose, the plan, and its command line.

Both the preview and the change are made from the same choice, so that nothing else is done than was shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from forebay.console.web.asking import Ask, WrongInput, whole_number
from forebay.operations.client import CommandError
from forebay.operations.groups.offset_reset import NewOffset, chosen_partitions, plan_reset, target
from forebay.operations.messages.log_offsets import Place
from forebay.operations.messages.positions import parse_time

_PLAIN = ("to_earliest", "to_latest")
_LINES_MAX = 12


class Choice(NamedTuple):
    to: str
    """As in `operations.offset_reset.target`."""
    value: str
    number: int
    timestamp_ms: int | None
    topics: tuple[str, ...]
    """TOPIC or TOPIC:0,1; all that the group knows if empty."""

    @property
    def arguments(self) -> list[str]:
        option = f"--{self.to.replace('_', '-')}"
        chosen = [option] if self.to in _PLAIN else [f"{option}={self.value}"]
        return chosen + [part for topic in self.topics for part in ("--topic", topic)] + ["--execute"]


def choice_of(given: Mapping[str, Any], allowed: Sequence[str]) -> Choice:
    """From a query or a body: `to`, `value`, and `topics` with blanks between them."""
    to, value = str(given.get("to", "")), str(given.get("value", "")).strip()
    if to not in allowed:
        raise WrongInput(f"choose one of {', '.join(allowed)}", "to")
    number, timestamp_ms = 0, None
    if to in ("to_offset", "shift_by"):
        number = whole_number(value, "value", least=0 if to == "to_offset" else -(2**62))
    if to == "to_time":
        try:
            timestamp_ms = parse_time(value, time.time_ns() // 1_000_000)
        except CommandError as error:
            raise WrongInput(str(error), "value") from None
    return Choice(to, value, number, timestamp_ms, tuple(str(given.get("topics", "")).split()))


class Plan(NamedTuple):
    offsets: list[NewOffset]
    gone: list[str]
    """Partitions that are left out: they exist no more."""

    def shown(self) -> dict[str, Any]:
        return {
            "rows": [each._asdict() for each in self.offsets],
            "gone": self.gone,
            "lag": sum(each.lag for each in self.offsets),
            "changed": sum(each.current != each.new_offset for each in self.offsets),
        }

    def lines(self) -> list[str]:
        """For the question: every partition, as far as a person reads."""
        lines = [
            f"{each.topic}-{each.partition}: "
            f"{'nothing' if each.current is None else f'{each.current:,}'} → {each.new_offset:,}"
            for each in self.offsets
        ]
        more = len(lines) - _LINES_MAX
        return lines if more <= 0 else [*lines[:_LINES_MAX], f"and {more:,} more, as shown"]


def plan_of(ask: Ask, choice: Choice, current: Mapping[Place, int]) -> Plan:
    """Raises WrongInput if the choice means no partition."""
    admin = ask.cluster.admin()
    try:
        places = chosen_partitions(ask.cluster.client, admin, choice.topics) if choice.topics else None
    except CommandError as error:
        raise WrongInput(str(error), "topics") from None
    places = sorted(current) if places is None else places
    if not places:
        raise WrongInput("the group has no offsets yet: name a topic", "topics")
    logs, planned = plan_reset(admin, places, current, target(choice.to, choice.number), choice.timestamp_ms)
    gone = [f"{topic}-{partition}" for topic, partition in sorted(logs.gone)]
    if not planned:
        raise WrongInput(f"these partitions exist no more: {', '.join(gone[:5])}", "topics")
    return Plan(planned, gone)
