"""The options of a read: names and meanings are those of Spark's Kafka source.

Spark hands options over in lower case, and so does this file hold them; messages give them their usual
spelling. An option that is not known, that Kafka's source forbids, or that contradicts another one is a
ConfigError that names it: a typo must not change what is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace

from forebay.errors import ConfigError
from forebay.lazy import dataclass
from forebay.spark.options import CONNECTION, FORBIDDEN, bootstrap_servers, lowered
from forebay.spark.source.offset_ranges import (
    EARLIEST,
    LATEST,
    Position,
    TopicPartition,
    parse_offsets,
    parse_partitions,
)
from forebay.spark.source.option_values import SPELLING, boolean, choice, count, delay_ms, spelled
from forebay.spark.source.remote_options import CHOICES, ONLY, PREFIX, RemoteOptions
from forebay.spark.source.selection import EVERYTHING, Interval, Selection

FETCH_BYTES = 8 << 20
"""The bytes of a fetch, unless kafka.max.partition.fetch.bytes is given; they bound a worker's memory."""

JOINED_TASKS = 32
"""A batch with more ranges than this reads small ones together."""
JOINED_RECORDS = 1000

FETCH_BYTES_MAX = 1 << 29
"""More than this does not fit where Arrow and the protocol count bytes."""

_OF_BATCHES = (
    "endingoffsets",
    "endingoffsetsbytimestamp",
    "endingtimestamp",
    "partitions",
    "minoffset",
    "maxoffset",
    "mintimestamp",
    "maxtimestamp",
    "refreshoffsets",
)

_USED_KAFKA = CONNECTION | {
    "kafka.bootstrap.servers",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.bytes",
    "kafka.check.crcs",
    "kafka.client.rack",
}

_SERVERS = "kafka.bootstrap.servers"

_OF_WRITES = {"kafka.batch.size", "kafka.compression.type", "kafka.max.request.size"}
"""One set of options may serve reads and writes."""

_FORBIDDEN = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "use commitOffsets",
    "kafka.key.deserializer": "keys are binary; cast the column",
    "kafka.value.deserializer": "values are binary; cast the column",
    "kafka.exclude.internal.topics": "a pattern never matches internal topics; name them with subscribe",
    **FORBIDDEN,
    "fetchoffset.numretries": "use kafka.default.api.timeout.ms",
    "fetchoffset.retryintervalms": "use kafka.retry.backoff.ms",
    "kafkaconsumer.polltimeoutms": "use kafka.request.timeout.ms",
    "path": "name topics with subscribe",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Exactly one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """How much of a stream goes into a micro-batch."""

    rows_max: int = 0
    rows_min: int = 0
    delay_ms_max: int = 15 * 60_000
    """After this long even fewer rows than the minimum make a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """Tells a worker how to read a range of offsets."""

    bootstrap: str
    """Empty: from an object store alone."""
    connection: Mapping[str, str] = field(default_factory=dict)
    """The kafka.* options of connections."""
    bytes_max: int = FETCH_BYTES
    read_committed: bool = False
    check_crcs: bool = True
    fail_on_data_loss: bool = True
    mark_unreadable: bool = False
    """Records that cannot be read are rows with the timestamp type UNREADABLE, instead of an error."""
    mark_lost: bool = False
    """Without fail_on_data_loss: a stretch of offsets that is gone is a row with the timestamp type LOST."""
    rack: str = ""
    """Where the tasks are: a replica there is read, if there is one."""
    remote: RemoteOptions = RemoteOptions()
    """The part of topics that lies in an object store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    subscription: Subscription
    fetching: Fetching
    starting: Position
    ending: Position
    selection: Selection = EVERYTHING
    refresh: bool | None = None
    """Of a batch: look its offsets up in each action; None where it is part of a stream only."""
    latest_if_unmatched: bool = False
    """Start at the latest offset where no record is as young as the starting timestamp."""
    tasks_min: int = 0
    records_per_task_max: int = 0
    records_per_task_min: int = JOINED_RECORDS
    """Small ranges share a task up to this size, where there are more than JOINED_TASKS of them."""
    admission: Admission = Admission()
    include_headers: bool = False
    commit_group: str = ""
    """The group to which finished offsets are committed; empty when that is not wanted."""


def batch_options(options: Mapping[str, str]) -> ReadOptions:
    given = _known(options)
    starting = _position(given, "starting", EARLIEST)
    ending = _position(given, "ending", LATEST)
    if _names(starting, LATEST):
        raise ConfigError(f"{starting.option}: a batch cannot start at the latest offset; it would be empty")
    if _names(ending, EARLIEST):
        raise ConfigError(f"{ending.option}: a batch cannot end at the earliest offset; it would be empty")
    refresh = boolean(given, "refreshoffsets", False) if "refreshoffsets" in given else None
    if refresh and ("minpartitions" in given or "maxrecordsperpartition" in given):
        raise ConfigError(
            "refreshOffsets=true has a task for each partition: leave out minPartitions and"
            " maxRecordsPerPartition"
        )
    found = replace(_options(given, starting, ending), selection=_selection(given), refresh=refresh)
    if refresh and not found.fetching.bootstrap:
        raise ConfigError(f"refreshOffsets=true asks brokers for their offsets: give {_SERVERS}")
    return found


def stream_options(options: Mapping[str, str]) -> ReadOptions:
    given = _known(options)
    for name in _OF_BATCHES:
        if name in given:
            raise ConfigError(f"{spelled(name)} is for batches: a stream reads on, in all partitions")
    found = _options(given, _position(given, "starting", LATEST), Position(everywhere=LATEST))
    if found.fetching.remote.read == ONLY:
        raise ConfigError("readRemote=only is for batches: a stream reads on, where the remote part ends")
    return found


def include_headers(options: Mapping[str, str]) -> bool:
    """The one option that the schema depends on. The names of the others are not checked here."""
    return boolean({name.lower(): value for name, value in options.items()}, "includeheaders", False)


def _options(given: Mapping[str, str], starting: Position, ending: Position) -> ReadOptions:
    return ReadOptions(
        subscription=_subscription(given),
        fetching=_fetching(given),
        starting=starting,
        ending=ending,
        latest_if_unmatched=choice(given, "startingoffsetsbytimestampstrategy", ("error", "latest"))
        == "latest",
        tasks_min=count(given, "minpartitions"),
        records_per_task_max=count(given, "maxrecordsperpartition"),
        records_per_task_min=_joined_records(given),
        admission=_admission(given),
        include_headers=boolean(given, "includeheaders", False),
        commit_group=_commit_group(given),
    )


# -- names -------------------------------------------------------------------------------------------------


def _known(options: Mapping[str, str]) -> dict[str, str]:
    of_store = {name.lower() for name in options if name.lower().startswith(PREFIX)}
    known = SPELLING.keys() | _USED_KAFKA | of_store
    return lowered(options, known=known, without_effect=_OF_WRITES, forbidden=_FORBIDDEN)


# -- groups of options -------------------------------------------------------------------------------------


def _subscription(given: Mapping[str, str]) -> Subscription:
    names = [name for name in ("subscribe", "subscribepattern", "assign") if name in given]
    if len(names) != 1:
        found = " and ".join(map(spelled, names)) or "none of them"
        raise ConfigError(f"give exactly one of subscribe, subscribePattern and assign: found {found}")
    text = given[names[0]].strip()
    if names == ["assign"]:
        return Subscription(partitions=parse_partitions("assign", text))
    if names == ["subscribepattern"]:
        return Subscription(pattern=_pattern(text))
    topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in text.split(",")))))
    if not topics:
        raise ConfigError(f"subscribe={text}: give one topic or more, with commas between them")
    return Subscription(topics=topics)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"subscribePattern={text} is not a regular expression: {error}") from None
    if not text:
        raise ConfigError("subscribePattern is empty: .* matches every topic")
    return text


def _position(given: Mapping[str, str], edge: str, default: int) -> Position:
    """As in Spark's source, a timestamp for all wins over timestamps, and these over offsets."""
    everywhere, each, offsets = f"{edge}timestamp", f"{edge}offsetsbytimestamp", f"{edge}offsets"
    if everywhere in given:
        moment = count(given, everywhere, least=0)
        return Position(everywhere=moment, is_timestamp=True, option=spelled(everywhere))
    if each in given:
        moments = parse_offsets(spelled(each), given[each])
        if any(moment < 0 for moment in moments.values()):
            raise ConfigError(f"{spelled(each)}={given[each]}: timestamps are milliseconds since 1970")
        return Position(by_partition=tuple(sorted(moments.items())), is_timestamp=True, option=spelled(each))
    return _offset_position(spelled(offsets), given.get(offsets, "").strip(), default)


def _selection(given: Mapping[str, str]) -> Selection:
    return Selection(
        partitions=_numbers(given, "partitions"),
        offsets=_interval(given, "minoffset", "maxoffset"),
        timestamps_ms=_interval(given, "mintimestamp", "maxtimestamp"),
    )


def _interval(given: Mapping[str, str], low: str, high: str) -> Interval:
    bounds = [count(given, name, least=0) if name in given else None for name in (low, high)]
    return Interval(low=bounds[0], high=bounds[1])


def _numbers(given: Mapping[str, str], name: str) -> frozenset[int] | None:
    if name not in given:
        return None
    parts = [part.strip() for part in given[name].split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError(f"{spelled(name)}={given[name]}: give numbers with commas between them, as 0,2,5")
    return frozenset(map(int, parts))


def _offset_position(option: str, text: str, default: int) -> Position:
    if not text:
        return Position(everywhere=default, option=option)
    if text.lower() in ("earliest", "latest"):
        return Position(everywhere=EARLIEST if text.lower() == "earliest" else LATEST, option=option)
    if not text.startswith("{"):
        raise ConfigError(f"{option}={text}: give earliest, latest, or offsets as JSON")
    offsets = parse_offsets(option, text)
    if any(offset < EARLIEST for offset in offsets.values()):
        raise ConfigError(f"{option}={text}: an offset is 0 or more, -1 for the latest, -2 for the earliest")
    return Position(by_partition=tuple(sorted(offsets.items())), option=option)


def _names(position: Position, offset: int) -> bool:
    if position.is_timestamp:
        return False
    return position.everywhere == offset or any(found == offset for _, found in position.by_partition)


def _fetching(given: Mapping[str, str]) -> Fetching:
    remote = _remote(given)
    # What is in an object store can be read without brokers.
    bootstrap = (
        "" if remote.read == ONLY and remote.url and _SERVERS not in given else bootstrap_servers(given)
    )
    connection = {name: value for name, value in given.items() if name in _USED_KAFKA}
    connection.setdefault("kafka.client.id", given.get("groupidprefix", "spark-forebay-source"))
    isolation = choice(given, "kafka.isolation.level", ("read_uncommitted", "read_committed"))
    sizes = (count(given, f"kafka.{name}") for name in ("max.partition.fetch.bytes", "fetch.max.bytes"))
    return Fetching(
        bootstrap=bootstrap,
        connection=connection,
        bytes_max=min(FETCH_BYTES_MAX, min(filter(None, sizes), default=FETCH_BYTES)),
        read_committed=isolation == "read_committed",
        check_crcs=boolean(given, "kafka.check.crcs", True),
        fail_on_data_loss=boolean(given, "failondataloss", True),
        mark_unreadable=choice(given, "unreadablerecords", ("fail", "mark")) == "mark",
        mark_lost=choice(given, "lostrecords", ("skip", "mark")) == "mark",
        rack=given.get("kafka.client.rack", "").strip(),
        remote=remote,
    )


def _remote(given: Mapping[str, str]) -> RemoteOptions:
    settings = {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
    found = RemoteOptions(
        read=choice(given, "readremote", CHOICES),
        url=given.get("remoteurl", "").strip(),
        settings=settings,
    )
    found.check()
    return found


def _admission(given: Mapping[str, str]) -> Admission:
    rows_max, rows_min = count(given, "maxoffsetspertrigger"), count(given, "minoffsetspertrigger")
    if rows_max and rows_min > rows_max:
        raise ConfigError(
            f"minOffsetsPerTrigger={rows_min} is more than maxOffsetsPerTrigger={rows_max}: no batch has both"
        )
    if "maxtriggerdelay" in given:
        return Admission(
            rows_max=rows_max, rows_min=rows_min, delay_ms_max=delay_ms(given["maxtriggerdelay"])
        )
    return Admission(rows_max=rows_max, rows_min=rows_min)


def _joined_records(given: Mapping[str, str]) -> int:
    least, most = given.get("minrecordsperpartition"), count(given, "maxrecordsperpartition")
    if least is None:
        return min(JOINED_RECORDS, most) if most else JOINED_RECORDS
    wanted = count(given, "minrecordsperpartition", least=0)
    if most and wanted > most:
        raise ConfigError(
            f"minRecordsPerPartition={wanted} is more than maxRecordsPerPartition={most}: no task has both"
        )
    return wanted


def _commit_group(given: Mapping[str, str]) -> str:
    group = given.get("kafka.group.id", "")
    commit = boolean(given, "commitoffsets", bool(group))
    if commit and not group:
        raise ConfigError("commitOffsets=true needs kafka.group.id: the group to which offsets are committed")
    return group if commit else ""
