"""Patterns over topic names: RE2's syntax, matched in a time that the pattern cannot blow up.

Clients that subscribe by pattern expect RE2, as in Kafka: no back references, no look-around, and the whole
name must match. Python's `re` would do for honest patterns, but it backtracks: `(a+)+b` against one long name
keeps it busy for hours, and with it the broker. So a pattern is compiled to a nondeterministic automaton, of
which the sets of states are computed when first needed and kept: about one lookup per character of a name.

Topic names consist of few characters, so a class of characters is simply the set of those in it.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.groups.consumer.pattern_syntax import (
    Alternatives,
    Chars,
    Edge,
    Node,
    Repeat,
    Sequence,
    parse,
)

STATES_MAX = 2_000
"""How large an automaton may be; repetitions such as (a{100}){100} are what makes one large."""

_CACHE_MAX = 5_000


class _Step(NamedTuple):
    """A state that goes on by a character of a set."""

    chars: frozenset[str]
    follow: int


class _Jump(NamedTuple):
    """A state that is several others at once; `at` says where in the name that is so, if not everywhere."""

    to: tuple[int, ...]
    at: Edge | None = None


_MATCH = _Step(frozenset(), -1)


class Pattern:
    def __init__(self, states: list[_Step | _Jump], entry: int) -> None:
        self._states = states
        self._start = self._closure({entry}, Edge.START)
        self._next: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._accepts: dict[frozenset[int], bool] = {}

    def matches(self, name: str) -> bool:
        current = self._start
        known = self._next
        for char in name:
            found = known.get((current, char))
            current = self._follow(current, char) if found is None else found
            if not current:
                return False
        return self._is_match(current)

    def _follow(self, current: frozenset[int], char: str) -> frozenset[int]:
        if len(self._next) >= _CACHE_MAX:
            self._next.clear()
            self._accepts.clear()
        steps = (self._states[index] for index in current)
        reached = {step.follow for step in steps if isinstance(step, _Step) and char in step.chars}
        found = self._next[current, char] = self._closure(reached, None)
        return found

    def _is_match(self, current: frozenset[int]) -> bool:
        found = self._accepts.get(current)
        if found is None:
            at_end = self._closure(set(current), Edge.END)
            found = self._accepts[current] = any(self._states[index] is _MATCH for index in at_end)
        return found

    def _closure(self, reached: set[int], edge: Edge | None) -> frozenset[int]:
        """With everything that is reached without another character, at this edge of the name."""
        waiting = list(reached)
        while waiting:
            state = self._states[waiting.pop()]
            if isinstance(state, _Jump) and (state.at is None or state.at is edge):
                found = [index for index in state.to if index not in reached]
                reached.update(found)
                waiting += found
        return frozenset(reached)


def compile_pattern(text: str) -> Pattern:
    """Raises ValueError, which says what is wrong with the pattern."""
    builder = _Builder()
    entry = builder.build(parse(text), 0)
    return Pattern(builder.states, entry)


class _Builder:
    """Makes states from the end of a pattern to its beginning, so that each knows what follows."""

    def __init__(self) -> None:
        self.states: list[_Step | _Jump] = [_MATCH]

    def _add(self, state: _Step | _Jump) -> int:
        if len(self.states) >= STATES_MAX:
            raise ValueError("the pattern is too large when its repetitions are written out")
        self.states.append(state)
        return len(self.states) - 1

    def build(self, node: Node, follow: int) -> int:
        match node:
            case Chars(chars):
                return self._add(_Step(chars, follow))
            case Edge():
                return self._add(_Jump((follow,), node))
            case Sequence(parts):
                for part in reversed(parts):
                    follow = self.build(part, follow)
                return follow
            case Alternatives(choices):
                return self._add(_Jump(tuple(self.build(choice, follow) for choice in choices)))
            case Repeat():
                return self._repeat(node, follow)

    def _repeat(self, node: Repeat, follow: int) -> int:
        entry = follow
        if node.most is None:
            entry = self._add(_Jump(()))
            self.states[entry] = _Jump((self.build(node.part, entry), follow))
        for _ in range((node.most or 0) - node.least):
            entry = self._add(_Jump((self.build(node.part, entry), follow)))
        for _ in range(node.least):
            entry = self.build(node.part, entry)
        return entry
