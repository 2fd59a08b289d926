"""The model of dead letters: which records of a share group must be in its dead letter topic, and how often.

A record that no request can have accepted was given up: it is there, once. A record that was neither rejected
nor delivered too often is not there, unless its batch was damaged. A reset of the group is a new chance for
each record to end there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from forebay.core.topic_partition import TopicPartition
from forebay.sim.models.facts import Content, name_of
from forebay.sim.models.share_records import Fate, Place, ShareRules
from forebay.wire.records import Record

_HEADER = "__dlq.errors."
_REASONS = ("Offset rejected by client.", "Offset delivery count exceeded the threshold.")
_UNREADABLE = "Offset could not be read from the disk of the partition's leader."
_NO_COPY = " The record cannot be copied: its batch is damaged."


class Letter(NamedTuple):
    """A dead letter as its headers name it."""

    place: Place
    group: str
    deliveries: int
    reason: str
    value: bytes | None

    @staticmethod
    def read(record: Record) -> Letter:
        """Raises ValueError if headers are missing."""
        texts = {key: bytes(value or b"").decode() for key, value in record.headers}
        names = ("topic", "partition", "offset", "group", "delivery.count", "message")
        if any(_HEADER + name not in texts for name in names):
            raise ValueError(f"a dead letter has the headers {sorted(texts)}")
        topic, partition, offset, group, count, reason = (texts[_HEADER + name] for name in names)
        at: TopicPartition = (topic, int(partition))
        value = None if record.value is None else bytes(record.value)
        return Letter((at, int(offset)), group, int(count), reason, value)


def wrong_letters(
    letters: Sequence[Letter], fates: Mapping[Place, Fate], content: Content, group: str, rules: ShareRules
) -> Iterator[str]:
    """Errors in the dead letters of a group that has finished `content`."""
    for letter in letters:
        at, offset = letter.place
        value = content.get(at, {}).get(offset)
        wanted = value if rules.copies_records else None
        if letter.place not in fates or letter.group != group:
            yield f"{letter} is of a record that the group never had"
        elif not _can_be(letter, fates[letter.place], rules):
            yield f"{letter} cannot be"
        elif letter.value != wanted and not letter.reason.endswith(_NO_COPY):
            yield f"{letter} is a copy of {value!r}"
    counts = Counter(letter.place for letter in letters)
    for place, fate in fates.items():
        name, count = name_of(*place), counts[place]
        if count > fate.dead_letters_max:
            yield f"{name} has {count} dead letters"
        if count and not fate.may_be_given_up:
            yield f"{name} has a dead letter, and was neither rejected nor delivered too often"
        if not count and not fate.may_be_accepted:
            yield f"{name} was given up, and has no dead letter"


def _can_be(letter: Letter, fate: Fate, rules: ShareRules) -> bool:
    if fate.may_be_damaged and letter.reason.removesuffix(_NO_COPY) in (*_REASONS, _UNREADABLE):
        return 0 <= letter.deliveries <= rules.delivery_limit
    return 1 <= letter.deliveries <= rules.delivery_limit and letter.reason in _REASONS
