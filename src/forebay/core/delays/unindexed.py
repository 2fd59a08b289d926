"""The notes that the index of waiting messages has not reached yet, as far as delivery needs them.

The leader plans deliveries from the index, which follows the log. A message may have been cancelled, or
replaced, by a note between the two. The leader has appended that note itself, in this term, so it can
remember it. It knows nothing of notes from before its term: nothing is delivered until the index has reached
the start of the term.

A transaction's notes count when it is committed. If it began before the term, not all of its notes are
remembered: then delivery waits for the index. It also waits if there is too much to remember.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, MutableSequence
from typing import NamedTuple

from forebay.wire.state.delay_notes import Waiting

_REMEMBERED_MAX = 100_000
_EFFECTS_APART = 10_000
"""From this many on, effects without names are counted together: the index may not move for hours."""


class _Effect(NamedTuple):
    """The effect of a note, or of the marker of a transaction with notes: what it ended."""

    next_offset: int
    keys: tuple[bytes, ...]
    ids: tuple[int, ...]
    waiting: int
    scheduled: tuple[bytes, ...] = ()
    """The keys under which messages wait because of it."""

    @property
    def names(self) -> int:
        """The number of names it has."""
        return len(self.keys) + len(self.ids)

    def and_then(self, effect: _Effect) -> _Effect:
        """The combination of both, if neither names anything."""
        return self._replace(next_offset=effect.next_offset, waiting=self.waiting + effect.waiting)


class UnindexedNotes:
    __slots__ = (
        "_effects",
        "_ids",
        "_keys",
        "_names",
        "_open",
        "_open_size",
        "_remembers_from",
        "_scheduled",
        "last_offset",
        "messages",
        "wait_for",
    )

    def __init__(self, start_offset: int) -> None:
        """`start_offset`: the start of the term."""
        self.wait_for = start_offset
        """Nothing is delivered before the index has reached this offset."""
        self._remembers_from = start_offset
        """All notes are remembered of transactions that began here or later."""
        self.last_offset = start_offset
        """The end of the last note or marker of this term: the index has nothing to read from here on."""
        self.messages = 0
        """The number of messages that wait because of notes that are not indexed."""
        self._effects: deque[_Effect] = deque()
        self._keys: dict[bytes, int] = {}
        self._ids: dict[int, int] = {}
        """The number of effects that name each id."""
        self._scheduled: dict[bytes, int] = {}
        """The number of effects with messages that wait under each key."""
        self._names = 0
        """The number of names in all effects, counting repeated ones."""
        self._open: dict[int, list[_Effect]] = {}
        """The effects of open transactions, by producer."""
        self._open_size = 0

    def appended(
        self,
        next_offset: int,
        *,
        keys: Iterable[bytes] = (),
        ids: Iterable[int] = (),
        waiting: int = 0,
        scheduled: Iterable[bytes] = (),
        producer_id: int | None = None,
    ) -> None:
        """A note was appended, and ends before this offset. `producer_id`: if it is part of a transaction.
        `producer_id`: set if it is part of a transaction.

        `waiting`: the number of messages that it adds. `scheduled`: the keys under which they wait.
        """
        effect = _Effect(next_offset, tuple(keys), tuple(ids), waiting, tuple(scheduled))
        self.last_offset = next_offset
        if producer_id is None:
            self._add(effect)
        elif effect.keys or effect.ids or waiting:
            _add_to(self._open.setdefault(producer_id, []), effect, apart=1)
            self._open_size += effect.names
            self.messages += waiting
        self._bound(next_offset)

    def ended(self, next_offset: int, producer_id: int, first_offset: int | None, *, commit: bool) -> None:
        """A marker was appended. `first_offset`: the start of its transaction, if there was one."""
        self.last_offset = next_offset
        noted = self._open.pop(producer_id, [])
        self._open_size -= sum(each.names for each in noted)
        self.messages -= sum(each.waiting for each in noted)
        if not commit:
            return
        if first_offset is not None and first_offset < self._remembers_from:
            self.wait_for = next_offset
        for each in noted:
            self._add(each._replace(next_offset=next_offset))
        self._bound(next_offset)

    def indexed(self, position: int) -> None:
        """The index has processed everything below this offset."""
        effects = self._effects
        while effects and effects[0].next_offset <= position:
            effect = effects.popleft()
            self.messages -= effect.waiting
            self._names -= effect.names
            for key in effect.keys:
                _count_down(self._keys, key)
            for id_ in effect.ids:
                _count_down(self._ids, id_)
            for key in effect.scheduled:
                _count_down(self._scheduled, key)

    @property
    def has_scheduled(self) -> bool:
        """True while messages wait under keys that the index does not have yet."""
        return bool(self._scheduled)

    def holds(self, key: bytes) -> bool:
        """True if a message waits under this key, and the index does not have it yet."""
        return key in self._scheduled

    def ends(self, message: Waiting) -> bool:
        """True if a message that is waiting according to the index no longer waits."""
        return message.schedule_key in self._keys or message.id in self._ids

    def ends_any(self, messages: Iterable[Waiting]) -> bool:
        """True if one of these messages, which are waiting according to the index, no longer waits."""
        if not self._keys and not self._ids:
            return False
        return any(self.ends(message) for message in messages)

    def ended_names(self) -> tuple[frozenset[bytes], frozenset[int]]:
        """The schedule keys and the ids of messages that no longer wait, whatever the index says."""
        return frozenset(self._keys), frozenset(self._ids)

    def _add(self, effect: _Effect) -> None:
        _add_to(self._effects, effect, apart=_EFFECTS_APART)
        self.messages += effect.waiting
        self._names += effect.names
        for key in effect.keys:
            self._keys[key] = self._keys.get(key, 0) + 1
        for id_ in effect.ids:
            self._ids[id_] = self._ids.get(id_, 0) + 1
        for key in effect.scheduled:
            self._scheduled[key] = self._scheduled.get(key, 0) + 1

    def _bound(self, next_offset: int) -> None:
        if self._names + self._open_size <= _REMEMBERED_MAX:
            return
        # Open transactions are not remembered: their markers make delivery wait.
        self.wait_for = self._remembers_from = next_offset
        self.messages -= sum(each.waiting for noted in self._open.values() for each in noted)
        self._open = {}
        self._open_size = 0
        effects, self._effects = self._effects, deque()
        for each in effects:
            _add_to(self._effects, each._replace(keys=(), ids=(), scheduled=()), apart=_EFFECTS_APART)
        self._keys, self._ids, self._scheduled, self._names = {}, {}, {}, 0


def _add_to(effects: MutableSequence[_Effect], effect: _Effect, *, apart: int) -> None:
    """Add an effect to others. Effects are kept apart up to a limit, and always if they name something."""
    if len(effects) >= apart and not effects[-1].names and not effect.names:
        effects[-1] = effects[-1].and_then(effect)
    else:
        effects.append(effect)


def _count_down(counts: dict[bytes, int] | dict[int, int], name: bytes | int) -> None:
    left = counts[name] - 1  # type: ignore[index]
    if left:
        counts[name] = left  # type: ignore[index]
    else:
        del counts[name]  # type: ignore[arg-type]
