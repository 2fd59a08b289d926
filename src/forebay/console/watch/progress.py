"""Compares groups and Spark's writers with the last look: what they have read, and when they last moved.

A stream of Spark that reads commits offsets to a group, with a word in their metadata. One that writes
exactly once keeps the number of its last batch as the offset of a group of another type: that is a ledger,
whose offsets are no places in a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forebay.console.watch.snapshot import GroupSeen, LedgerSeen

LEDGER = "spark-sink"
"""The protocol type of a ledger."""
SPARK = "spark"
"""The metadata of offsets that a stream has committed (`spark/source/offset_lookup.py`)."""
_PREFIX = "spark-sink-"
_OWN_SPACE = "\u00a0"
_SECONDS_MIN = 0.5


def take_ledgers(groups: dict[str, GroupSeen]) -> dict[str, LedgerSeen]:
    """Take the ledgers out of the groups. Further pieces of a long record are left out."""
    found = {}
    for name in [name for name, group in groups.items() if group.kind == LEDGER]:
        group = groups.pop(name)
        shown = name.removeprefix(_PREFIX)
        if group.offsets and f"{_OWN_SPACE}#" not in shown:
            shown = shown.replace(f"-{_OWN_SPACE}", " to ")
            found[shown] = LedgerSeen(
                name=shown, topics=tuple(sorted(group.topics)), batch=max(group.offsets.values())
            )
    return found


def groups_moved(
    before: Mapping[str, GroupSeen], now: Mapping[str, GroupSeen], before_s: float, now_s: float
) -> dict[str, GroupSeen]:
    return {name: _moved(before.get(name), group, before_s, now_s) for name, group in now.items()}


def _moved(before: GroupSeen | None, now: GroupSeen, before_s: float, now_s: float) -> GroupSeen:
    if before is None or before is now:
        return now
    if now_s - before_s < _SECONDS_MIN:
        return replace(now, read_rate=before.read_rate, moved_s=before.moved_s)
    read = sum(
        max(0, offset - before.offsets[place])
        for place, offset in now.offsets.items()
        if place in before.offsets
    )
    changed = before.offsets != now.offsets
    return replace(now, read_rate=read / (now_s - before_s), moved_s=now_s if changed else before.moved_s)


def ledgers_moved(
    before: Mapping[str, LedgerSeen],
    now: Mapping[str, LedgerSeen],
    before_s: float,
    now_s: float,
    keep: bool,
) -> dict[str, LedgerSeen]:
    """`keep`: a broker did not answer, so that a ledger that is missing may still be there."""
    found = dict(before) if keep else {}
    for name, ledger in now.items():
        old = before.get(name)
        if old is None:
            found[name] = ledger
        elif now_s - before_s < _SECONDS_MIN:
            found[name] = replace(ledger, batches_rate=old.batches_rate, moved_s=old.moved_s)
        else:
            rate = max(0, ledger.batch - old.batch) / (now_s - before_s)
            moved_s = now_s if ledger.batch != old.batch else old.moved_s
            found[name] = replace(ledger, batches_rate=rate, moved_s=moved_s)
    return dict(sorted(found.items()))
