"""Reading a part of a topic: options for a `load()` of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from forebay.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def between(
    options: Mapping[str, object],
    *,
    partitions: Collection[int] | None = None,
    min_offset: int | None = None,
    max_offset: int | None = None,
    min_time: datetime | None = None,
    max_time: datetime | None = None,
) -> dict[str, str]:
    """The options of a batch read, narrowed: only what is asked for here is fetched. All bounds are included.

    Moments without a time zone are local time. Options that are narrowed already become narrower.
    """
    narrowed = {name: str(value) for name, value in options.items()}
    if partitions is not None:
        _keep(narrowed, partitions)
    _raise(narrowed, "minOffset", min_offset)
    _lower(narrowed, "maxOffset", max_offset)
    # Brokers count in milliseconds: a moment between two of them is rounded into what is read.
    _raise(narrowed, "minTimestamp", None if min_time is None else -(_since(min_time, _EPOCH)))
    _lower(narrowed, "maxTimestamp", None if max_time is None else _since(_EPOCH, max_time))
    return narrowed


def _keep(options: dict[str, str], partitions: Collection[int]) -> None:
    if not partitions:
        raise ConfigError("partitions is empty: nothing would be read")
    name = _name(options, "partitions")
    known = {int(each) for each in options[name].split(",")} if name in options else set(partitions)
    kept = known & set(partitions)
    if not kept:
        raise ConfigError(f"none of the partitions {sorted(partitions)} is among {sorted(known)}")
    options[name] = ",".join(map(str, sorted(kept)))


def _raise(options: dict[str, str], option: str, least: int | None) -> None:
    if least is not None and least >= 0:  # messages without a timestamp have -1
        name = _name(options, option)
        options[name] = str(max(least, int(options.get(name, 0))))


def _lower(options: dict[str, str], option: str, most: int | None) -> None:
    if most is None:
        return
    if most < 0:
        raise ConfigError(f"{option}={most}: nothing would be read")
    name = _name(options, option)
    options[name] = str(min(most, int(options.get(name, most))))


def _name(options: Mapping[str, str], option: str) -> str:
    """As it was given: Spark's options have no case."""
    return next((name for name in options if name.lower() == option.lower()), option)


def _since(start: datetime, end: datetime) -> int:
    """Whole milliseconds; the last one that has begun does not count."""
    return (_aware(end) - _aware(start)) // _MILLISECOND


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.astimezone()
