"""`forebay cluster check`: compares the brokers' disks with the store.

Each broker is asked over the protocol, so the command works from anywhere. The data directory of a broker
that is stopped can be looked at instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.output import json_option, print_json, print_table
from forebay.lazy import dataclass

if TYPE_CHECKING:
    from forebay.core.cluster.image import ClusterImage
    from forebay.wire.messages.describe_disk import DescribeDiskResponse, DiskPartition

_SHOWN_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    kind: str
    broker: int | None
    what: str


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Look at the data directory of a broker that is stopped, instead of asking brokers.",
)
@json_option
@client_options
def check(data_dir: Path | None, as_json: bool, client: Client) -> None:
    """Compare what the brokers' disks hold with what the store says.

    Run it after a backup was restored. Exits with 1 if something is wrong.
    """
    if data_dir is not None:
        shown, problems = _look_at(data_dir)
    else:
        shown, problems = _ask_all(client)
    if as_json:
        print_json({**shown, "problems": [_problem_json(each) for each in problems]})
    else:
        _print(shown, problems)
    if problems:
        raise click.exceptions.Exit(1)


# -- a running cluster -----------------------------------------------------------------------------------


def _ask_all(client: Client) -> tuple[dict[str, Any], list[Problem]]:
    from forebay.operations.client import join_address
    from forebay.operations.cluster.cluster_state import read_image
    from forebay.operations.wire import BrokerConnections, error_text
    from forebay.wire.messages.describe_disk import DescribeDiskRequest, DescribeDiskResponse

    connections = BrokerConnections(client)
    reports: dict[int, DescribeDiskResponse] = {}
    problems: list[Problem] = []
    try:
        image = read_image(connections.any())
        for broker in image.brokers.values():
            try:
                connection = connections.at(join_address(broker.host, broker.port))
                if not connection.serves(DescribeDiskRequest):
                    raise CommandError("it does not know the request: it is of an earlier version")
                answer = connection.ask(DescribeDiskRequest(), DescribeDiskResponse)
                if answer.error_code:
                    raise CommandError(error_text(answer.error_code, answer.error_message))
                reports[broker.id] = answer
            except CommandError as error:
                problems.append(Problem(kind="no answer", broker=broker.id, what=str(error)))
    finally:
        connections.close()
    problems += found_in(image, reports)
    return {"brokers": [_report_json(report) for report in reports.values()]}, problems


def found_in(image: ClusterImage, reports: dict[int, DescribeDiskResponse]) -> list[Problem]:
    """All problems that were found."""
    problems = [*_away(image)]
    for node, report in reports.items():
        problems += _store_problems(node, report)
        problems += [Problem(kind="stray", broker=node, what=f"{name} is not used") for name in report.strays]
        problems += [
            Problem(
                kind="epoch ahead",
                broker=node,
                what=f"{_name(each)} has leader epoch {each.last_epoch}, the store {each.leader_epoch}",
            )
            for each in report.partitions
            if each.last_epoch > each.leader_epoch
        ]
    if reports:
        newest = max(reports.values(), key=lambda report: report.restore)
        problems += [
            Problem(
                kind="waiting",
                broker=None,
                what=f"{each.topic}-{each.partition} waits for brokers {each.awaited} after a restore",
            )
            for each in newest.waiting
        ]
    return [*problems, *_short_replicas(image, reports)]


def _away(image: ClusterImage) -> Iterator[Problem]:
    replicas = {
        node for topic in image.topics.values() for state in topic.partitions for node in state.replicas
    }
    for node in sorted(replicas - image.brokers.keys()):
        yield Problem(kind="away", broker=node, what="it has replicas, and does not run")


def _store_problems(node: int, report: DescribeDiskResponse) -> Iterator[Problem]:
    if report.store_behind:
        yield Problem(kind="store behind", broker=node, what="the store knows less than its disk")
    if report.remembered_revision > report.store_revision:
        what = f"it remembers revision {report.remembered_revision}, the store is at {report.store_revision}"
        yield Problem(kind="store behind", broker=node, what=what)
    if report.remembered_index > report.store_index:
        what = f"it remembers index {report.remembered_index}, the store is at {report.store_index}"
        yield Problem(kind="store behind", broker=node, what=what)
    if report.producer_ids_end > report.producer_ids_next:
        what = f"ids below {report.producer_ids_end} are in use, the next is {report.producer_ids_next}"
        yield Problem(kind="producer ids", broker=node, what=what)


def _short_replicas(image: ClusterImage, reports: dict[int, DescribeDiskResponse]) -> Iterator[Problem]:
    """Replicas that are in sync according to the store, but lack committed messages of the leader."""
    held = {
        (each.topic, each.partition, node): each
        for node, report in reports.items()
        for each in report.partitions
    }
    asked = {node: turn for turn, node in enumerate(reports)}
    for topic in image.topics.values():
        for state in topic.partitions:
            leader = held.get((topic.name, state.index, state.leader))
            for node in state.isr if leader is not None else ():
                replica = held.get((topic.name, state.index, node))
                # The brokers were asked one after the other: one that was asked first may be short.
                if replica is None or leader is None or asked[node] < asked[state.leader]:
                    continue
                if replica.end_offset < leader.high_watermark:
                    ends = f"ends at {replica.end_offset}, committed is {leader.high_watermark}"
                    yield Problem(kind="short replica", broker=node, what=f"{_name(replica)} {ends}")


def _report_json(report: DescribeDiskResponse) -> dict[str, Any]:
    return {
        "broker": report.node_id,
        "store_behind": report.store_behind,
        "restores": report.restore,
        "store": {"revision": report.store_revision, "index": report.store_index},
        "remembered": {"revision": report.remembered_revision, "index": report.remembered_index},
        "producer_ids": {"next": report.producer_ids_next, "in_use_below": report.producer_ids_end},
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "leader_epoch": each.leader_epoch,
                "last_epoch": each.last_epoch,
                "end_offset": each.end_offset,
                "high_watermark": each.high_watermark,
            }
            for each in report.partitions
        ],
        "strays": list(report.strays),
    }


def _name(partition: DiskPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


# -- a stopped broker ------------------------------------------------------------------------------------


def _look_at(data_dir: Path) -> tuple[dict[str, Any], list[Problem]]:
    """The contents and problems of a data directory; it is only read."""
    from dataclasses import asdict

    from forebay.errors import StorageError
    from forebay.storage.put_aside import partition_names
    from forebay.storage.real_disk import RealDisk
    from forebay.storage.store_evidence import read_evidence
    from forebay.storage.strays import strays

    disk, path = RealDisk(), str(data_dir)
    aside = [each.name for each in strays(disk, path)]
    problems = [Problem(kind="stray", broker=None, what=f"{name} is not used") for name in aside]
    partitions: list[dict[str, Any]] = []
    for topic, index in partition_names(disk, path):
        try:
            partitions.append(_stored(data_dir, topic, index))
        except (OSError, StorageError) as error:
            problems.append(Problem(kind="unreadable", broker=None, what=f"{topic}-{index}: {error}"))
    evidence = read_evidence(disk, path)
    shown = {
        "data_dir": path,
        "store_evidence": None if evidence is None else asdict(evidence),
        "partitions": partitions,
        "strays": aside,
    }
    return shown, problems


def _stored(data_dir: Path, topic: str, index: int) -> dict[str, Any]:
    from forebay.core.cluster.stored.image_text import topic_id_text
    from forebay.errors import StorageError
    from forebay.storage.checkpoint import (
        HIGH_WATERMARKS,
        RECOVERY_POINTS,
        read_offsets,
        read_partition_metadata,
    )
    from forebay.storage.log.leader_epochs import LeaderEpochs
    from forebay.storage.real_disk import RealDisk
    from forebay.storage.strays import UNKNOWN_EPOCH, survey

    disk, directory = RealDisk(), str(data_dir / f"{topic}-{index}")
    topic_id = read_partition_metadata(disk, directory).topic_id
    last_epoch = survey(disk, directory).last_epoch
    if last_epoch == UNKNOWN_EPOCH:
        LeaderEpochs(disk, directory)  # raises StorageError if it is to blame
        raise StorageError(f"no batch in {directory} tells a leader epoch: they are damaged")
    return {
        "topic": topic,
        "partition": index,
        "topic_id": None if topic_id is None else topic_id_text(topic_id),
        "last_epoch": last_epoch,
        "synced_offset": read_offsets(disk, str(data_dir / RECOVERY_POINTS)).get((topic, index), 0),
        "high_watermark": read_offsets(disk, str(data_dir / HIGH_WATERMARKS)).get((topic, index), 0),
    }


# -- what is shown ---------------------------------------------------------------------------------------


def _problem_json(problem: Problem) -> dict[str, Any]:
    return {"kind": problem.kind, "broker": problem.broker, "what": problem.what}


def _print(shown: dict[str, Any], problems: Sequence[Problem]) -> None:
    for report in shown.get("brokers", ()):
        click.echo(
            f"broker {report['broker']}: {len(report['partitions'])} partitions, "
            f"{len(report['strays'])} not used, remembers revision {report['remembered']['revision']} "
            f"of {report['store']['revision']}"
        )
    if "data_dir" in shown:
        headers = ("TOPIC", "PARTITION", "LAST EPOCH", "SYNCED", "HIGH WATERMARK")
        names = ("topic", "partition", "last_epoch", "synced_offset", "high_watermark")
        rows = [[each[name] for name in names] for each in shown["partitions"]]
        print_table(headers, rows)
    if not problems:
        click.echo("nothing is wrong")
        return
    rows = [[each.kind, each.broker, each.what] for each in problems[:_SHOWN_MAX]]
    print_table(("PROBLEM", "BROKER", "WHAT"), rows)
    if len(problems) > _SHOWN_MAX:
        click.echo(f"... and {len(problems) - _SHOWN_MAX} more; --json shows all")
