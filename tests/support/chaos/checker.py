"""Kafka's rules, held against what clients did and saw (`history.py`).

Each rule is a function that yields one sentence per breach. A rule takes nothing for granted that a client
was not told: a message without an acknowledge may be there or not, a transaction whose producer was not
answered may have ended either way, but all of it the same way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from support.chaos.history import Commit, Content, Found, History, Place, Read, Transaction

Rule = Callable[[History], Iterator[str]]


def check(history: History) -> list[str]:
    """Every breach of every rule, named by the rule."""
    return [f"{rule.__name__}: {breach}" for rule in RULES for breach in rule(history)]


def one_value_per_offset(history: History) -> Iterator[str]:
    """An offset, once told to anybody, means the same message to everybody for ever."""
    told: dict[tuple[Place, int], bytes] = {}
    for place, offset, value in _tellings(history):
        before = told.setdefault((place, offset), value)
        if before != value:
            yield f"{_at(place, offset)} was {before!r} and {value!r}"


def _tellings(history: History) -> Iterator[tuple[Place, int, bytes]]:
    for content in (history.stored, history.visible):
        for place, values in content.items():
            yield from ((place, offset, value) for offset, value in values.items())
    yield from ((ack.place, ack.offset, ack.value) for ack in history.acks if ack.offset is not None)
    yield from ((read.place, read.offset, read.value) for read in history.reads)


def nothing_from_nowhere(history: History) -> Iterator[str]:
    for place, offset, value in _tellings(history):
        send = history.sends.get(value)
        if send is None:
            yield f"{_at(place, offset)} has {value!r}, which nobody sent"
        elif send.place != place:
            yield f"{_at(place, offset)} has {value!r}, which was sent to {_at(send.place)}"


def no_lost_write(history: History) -> Iterator[str]:
    """What was acknowledged and not aborted is there, where the acknowledge said."""
    visible = _values(history.visible)
    for ack in history.acks:
        if _outcome(history, ack.value) != "committed":
            continue
        if ack.offset is None:
            if ack.value not in visible:
                yield f"{ack.value!r} was acknowledged, as a repeat, in {_at(ack.place)}, and is not there"
            continue
        kept = history.visible.get(ack.place, {}).get(ack.offset)
        if kept != ack.value:
            yield f"{ack.value!r} was acknowledged at {_at(ack.place, ack.offset)}, where {kept!r} is"


def no_lost_transaction(history: History) -> Iterator[str]:
    """All messages of a committed transaction are there, whether or not each was acknowledged."""
    visible = _values(history.visible)
    for value, send in history.sends.items():
        if send.transaction and _outcome(history, value) == "committed" and value not in visible:
            yield f"{value!r} of the committed transaction {send.transaction} is lost"


def all_or_nothing(history: History) -> Iterator[str]:
    visible = _values(history.visible)
    shares: dict[str, list[bool]] = defaultdict(list)
    for value, send in history.sends.items():
        if send.transaction is not None:
            shares[send.transaction].append(value in visible)
    for name, seen in shares.items():
        if any(seen) and not all(seen):
            yield f"{sum(seen)} of {len(seen)} messages of transaction {name} are there"


def no_double_write(history: History) -> Iterator[str]:
    for place, values in history.stored.items():
        for value, count in Counter(values.values()).items():
            if count > 1 and value in history.sends and history.sends[value].exactly_once:
                yield f"{value!r} is {count} times in {_at(place)}"


def in_order(history: History) -> Iterator[str]:
    """The messages of an idempotent producer keep their order within a partition."""
    for place, values in history.stored.items():
        last: dict[str, int] = {}
        for offset in sorted(values):
            send = history.sends.get(values[offset])
            if send is None or not send.exactly_once:
                continue
            if send.number < last.get(send.producer, -1):
                yield f"{values[offset]!r} at {_at(place, offset)} comes after what was sent later"
            last[send.producer] = send.number


def no_aborted_read(history: History) -> Iterator[str]:
    """Who reads committed messages sees nothing of a transaction that was aborted, or is still open."""
    for read in history.reads:
        if read.committed_only and (problem := _uncommitted(history, read.value, read.at)):
            yield f"{read.consumer} read {read.value!r} at {_at(read.place, read.offset)}, {problem}"
    for place, values in history.visible.items():
        for offset, value in values.items():
            if problem := _uncommitted(history, value, None):
                yield f"{value!r} is visible at {_at(place, offset)}, {problem}"


def _uncommitted(history: History, value: bytes, at: int | None) -> str | None:
    transaction = _transaction(history, value)
    if transaction is None:
        return None
    if transaction.outcome == "aborted":
        return "which was aborted"
    if transaction.commit_begun is None:
        return "which nobody asked to commit"
    if at is not None and at < transaction.commit_begun:
        return "before anybody asked to commit it"
    return None


def contiguous_polls(history: History) -> Iterator[str]:
    """From where it was told to begin, a consumer gets every message it may see, in order, once."""
    begins = {(begin.consumer, begin.place): begin.offset for begin in history.begins}
    visible, stored = _sorted_offsets(history.visible), _sorted_offsets(history.stored)
    for (consumer, place), reads in _by_consumer(history).items():
        offsets = (visible if reads[0].committed_only else stored).get(place, [])
        got = [read.offset for read in reads]
        first = begins.get((consumer, place), got[0])
        expected = offsets[bisect_left(offsets, first) : bisect_right(offsets, max(got))]
        if got != expected:
            yield f"{consumer} read {_at(place)} {_difference(got, expected)}"


def _sorted_offsets(content: Content) -> dict[Place, list[int]]:
    return {place: sorted(values) for place, values in content.items()}


def _by_consumer(history: History) -> dict[tuple[str, Place], list[Read]]:
    by_consumer: dict[tuple[str, Place], list[Read]] = defaultdict(list)
    for read in sorted(history.reads, key=lambda read: read.at):
        by_consumer[read.consumer, read.place].append(read)
    return by_consumer


def _difference(got: list[int], expected: list[int]) -> str:
    for have, want in zip(got, expected, strict=False):
        if have != want:
            return f"and got offset {have} instead of {want}"
    return f"and got {len(got)} messages instead of {len(expected)}"


def commits_never_go_back(history: History) -> Iterator[str]:
    """A committed offset is at least what was committed before one asked, and somebody tried to commit it."""
    tried: dict[tuple[str, Place], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        if _may_count(history, commit):
            tried[commit.group, commit.place].append(commit)
    for found in history.found:
        yield from _judge(found, tried[found.group, found.place])


def _judge(found: Found, commits: list[Commit]) -> Iterator[str]:
    name = f"group {found.group} in {_at(found.place)}"
    since = _last_reset(found, commits)
    counting = [commit for commit in commits if since is None or commit.begun >= since.begun]
    done = [c.offset for c in counting if c.acknowledged is not None and c.acknowledged < found.begun]
    if done and (found.offset is None or found.offset < max(done)):
        yield f"{name}: {max(done)} was committed, {found.offset} found later"
    if found.offset is not None and found.offset not in {c.offset for c in commits if c.begun < found.ended}:
        yield f"{name}: found {found.offset}, which nobody committed"


def _last_reset(found: Found, commits: list[Commit]) -> Commit | None:
    """After a reset only what follows it counts."""
    resets = [commit for commit in commits if commit.is_reset and commit.begun < found.ended]
    return max(resets, key=lambda commit: commit.begun, default=None)


def _may_count(history: History, commit: Commit) -> bool:
    transaction = history.transactions.get(commit.transaction or "")
    return transaction is None or transaction.outcome in ("committed", "unknown")


def one_member_per_generation(history: History) -> Iterator[str]:
    """Within one generation of a group, a partition is read by one member, and given to one."""
    owners: dict[tuple[str, int, Place], str] = {}
    for read in history.reads:
        if read.group is None or read.generation is None:
            continue
        owner = owners.setdefault((read.group, read.generation, read.place), read.member)
        if owner != read.member:
            yield f"{owner} and {read.member} read {_at(read.place)} in generation {read.generation}"
    for group, epoch, place, member in sorted(history.given):
        owner = owners.setdefault((group, epoch, place), member)
        if owner != member:
            yield f"{owner} and {member} of {group} had {_at(place)} in epoch {epoch}"


def nothing_missed(history: History) -> Iterator[str]:
    """Once everything has been read, every visible message of its topics was seen by every group."""
    for group, place, missed in _missed(history):
        yield f"group {group} missed {len(missed)} messages of {_at(place)}, from {min(missed)} on"


def missed_count(history: History) -> int:
    return sum(len(missed) for _, _, missed in _missed(history))


def _missed(history: History) -> Iterator[tuple[str, Place, list[int]]]:
    seen: dict[str, set[tuple[Place, int]]] = defaultdict(set)
    for read in list(history.reads):
        if read.group is not None:
            seen[read.group].add((read.place, read.offset))
    for group, places in seen.items():
        topics = {place[0] for place, _ in places}
        for place, values in history.visible.items():
            missed = [offset for offset in values if (place, offset) not in places]
            if place[0] in topics and missed:
                yield group, place, missed


RULES: tuple[Rule, ...] = (
    one_value_per_offset,
    nothing_from_nowhere,
    no_lost_write,
    no_lost_transaction,
    all_or_nothing,
    no_double_write,
    in_order,
    no_aborted_read,
    contiguous_polls,
    commits_never_go_back,
    one_member_per_generation,
    nothing_missed,
)


def transformed_once(
    history: History, source: str, target: str, origin: Callable[[bytes], bytes]
) -> list[str]:
    """Every visible message of a topic is the origin of exactly one visible message of another."""
    inputs = Counter(_topic_values(history.visible, source))
    outputs = Counter(origin(value) for value in _topic_values(history.visible, target))
    lost = [f"nothing was made of {value!r}" for value in inputs - outputs]
    return lost + [f"{value!r} was made into something once too often" for value in outputs - inputs]


def _topic_values(content: Content, topic: str) -> list[bytes]:
    return [value for (name, _), values in content.items() if name == topic for value in values.values()]


def _values(content: Content) -> set[bytes]:
    return {value for values in content.values() for value in values.values()}


def _transaction(history: History, value: bytes) -> Transaction | None:
    send = history.sends.get(value)
    return None if send is None else history.transactions.get(send.transaction or "")


def _outcome(history: History, value: bytes) -> str:
    """A message outside of transactions counts as committed."""
    transaction = _transaction(history, value)
    return "committed" if transaction is None else transaction.outcome


def _at(place: Place, offset: int | None = None) -> str:
    name = f"{place[0]}-{place[1]}"
    return name if offset is None else f"{name}@{offset}"
