"""Brokers: their share of the work, disks by topic, moves under way, failovers; rebalance, drain, forget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from forebay.console.pages.cluster.overview import broker_rows
from forebay.console.watch.snapshot import BrokerSeen
from forebay.console.web.asking import Ask, Change, NotThere, WrongInput, whole_number
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.replicas.balancing import Move, drain, led_by_others, rebalance
from forebay.errors import ErrorCode, KafkaError
from forebay.operations.cluster.cluster_state import (
    drained_brokers,
    forget_broker,
    mark_drained,
    moves_under_way,
    read_image,
)
from forebay.operations.cluster.failovers import failover_json, read_failovers
from forebay.operations.cluster.reassignments import elect_first_replicas
from forebay.operations.settings import read_configs
from forebay.operations.wire import WireConnection, check
from forebay.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

PAGE = Page()

_MOVES_SHOWN_MAX = 50
_FAILOVERS_SHOWN_MAX = 20


@PAGE.get("/brokers")
def brokers(ask: Ask) -> dict[str, Any]:
    picture = ask.cluster.snapshot()
    with ask.cluster.connections() as connections:
        connection = connections.any()
        drained = set(drained_brokers(connection))
        under_way = moves_under_way(connection)
        failovers = read_failovers(connection)
    rows = [{**row, "drained": str(row["id"]) in drained} for row in broker_rows(picture)]
    known = {broker.id for broker in picture.brokers}
    away = {
        node
        for topic in picture.topics.values()
        for part in topic.partitions
        for node in part.replicas
        if node not in known
    }
    return {
        "rows": rows,
        "away": sorted(away),
        "topics": len(picture.topics),
        "moving": [
            {
                "topic": topic,
                "partition": index,
                "replicas": list(move.replicas),
                "adding": list(move.adding_replicas),
                "removing": list(move.removing_replicas),
            }
            for (topic, index), move in sorted(under_way.items())[:_MOVES_SHOWN_MAX]
        ],
        "moving_total": len(under_way),
        "job": ask.cluster.moving.progress(),
        "failovers": [failover_json(each) for each in failovers[-_FAILOVERS_SHOWN_MAX:]][::-1],
    }


@PAGE.get("/brokers/{node}")
def broker(ask: Ask) -> dict[str, Any]:
    """One broker, and the disk that each topic takes there."""
    found = _seen(ask)
    picture = ask.cluster.snapshot()
    (row,) = (row for row in broker_rows(picture) if row["id"] == found.id)
    with ask.cluster.connections() as connections:
        sizes = _sizes(connections.at(found.address))
    leads = {
        topic.name: sum(part.leader == found.id for part in topic.partitions)
        for topic in picture.topics.values()
    }
    listed = page_of(
        ask,
        [(name, count, size) for name, (count, size) in sizes.items()],
        name=lambda each: each[0],
        columns={
            "name": lambda each: each[0],
            "partitions": lambda each: each[1],
            "leads": lambda each: leads.get(each[0], 0),
            "size": lambda each: each[2],
        },
        default="-size",
        show=lambda each: {
            "name": each[0],
            "partitions": each[1],
            "leads": leads.get(each[0], 0),
            "size": each[2],
        },
    )
    return {**row, "disk": listed}


@PAGE.get("/brokers/{node}/settings")
def settings(ask: Ask) -> dict[str, Any]:
    """Every setting of the broker with its value and where that comes from."""
    return {"rows": read_configs(ask.cluster.admin(), "broker", str(_seen(ask).id))}


@PAGE.get("/brokers/{node}/requests")
def requests(ask: Ask) -> dict[str, Any]:
    """The requests of the last moments by kind: how many, and how long they took."""
    node, activity = _seen(ask).id, ask.cluster.snapshot().activity
    seen = {} if activity is None else activity.by_broker.get(node, {})
    rows = sorted(seen.values(), key=lambda each: -each.rate)
    return {
        "known": activity is not None and node in activity.by_broker,
        "rows": [asdict(row) for row in rows],
    }


@PAGE.change("/brokers/rebalance")
def level(ask: Ask) -> Change:
    image, moves = _decided(ask, rebalance)
    led = led_by_others(image)
    if not moves and not led:
        raise WrongInput("the cluster is balanced: there is nothing to move")
    lines = _lines(image, moves)
    if led:
        lines.append(f"{len(led)} partitions get their first replica as leader")
    return Change(
        question=f"Move {_count(len(moves))} and level the leaders?",
        details=lines,
        done=f"moving {_count(len(moves))}; this page shows how far it is",
        command=["cluster", "rebalance"],
        act=lambda: ask.cluster.moving.begin("Rebalance", moves, _level_leaders),
    )


@PAGE.change("/brokers/{node}/drain")
def drain_broker(ask: Ask) -> Change:
    node = whole_number(ask.path["node"], "node", most=2**31 - 1)
    fewer = ask.body.get("fewer_replicas") is True

    def decide(image: ClusterImage) -> list[Move]:
        try:
            return drain(image, node, fewer_replicas=fewer)
        except KafkaError as error:
            cannot = error.code is ErrorCode.INVALID_REPLICATION_FACTOR and not fewer
            hint = "; or allow fewer replicas" if cannot else ""
            raise WrongInput(error.message + hint, "fewer_replicas") from None

    image, moves = _decided(ask, decide)

    def act() -> None:
        with ask.cluster.connections() as connections:
            mark_drained(connections.any(), node, drained=True)
        ask.cluster.moving.begin(f"Drain broker {node}", moves)

    return Change(
        question=f"Move {_count(len(moves))} away from broker {node}?",
        details=[
            *_lines(image, moves),
            "It gets no new partitions from now on, until it is started again or taken back.",
        ],
        done=f"draining broker {node}; this page shows how far it is",
        command=["cluster", "drain", str(node), *(["--fewer-replicas"] if fewer else [])],
        act=act,
    )


@PAGE.change("/brokers/{node}/take-back")
def take_back(ask: Ask) -> Change:
    node = whole_number(ask.path["node"], "node", most=2**31 - 1)

    def act() -> None:
        with ask.cluster.connections() as connections:
            mark_drained(connections.any(), node, drained=False)

    return Change(
        question=f"Let broker {node} have partitions again?",
        details=["It gets its share of those that exist by a rebalance."],
        done=f"broker {node} gets partitions again",
        command=["cluster", "drain", str(node), "--undo"],
        act=act,
    )


@PAGE.change("/brokers/{node}/forget")
def forget(ask: Ask) -> Change:
    node = whole_number(ask.path["node"], "node", most=2**31 - 1)

    def act() -> None:
        with ask.cluster.connections() as connections:
            forget_broker(connections.any(), node)

    return Change(
        question=f"Forget broker {node}, which was stopped for good?",
        details=["Its settings go. Its number stays taken, so that no other is mistaken for it."],
        done=f"forgot broker {node}",
        command=["cluster", "forget", str(node)],
        act=act,
    )


def _seen(ask: Ask) -> BrokerSeen:
    node = whole_number(ask.path["node"], "node", most=2**31 - 1)
    found = ask.cluster.snapshot().broker(node)
    if found is None:
        raise NotThere(f"there is no broker {node} in the cluster now")
    return found


def _sizes(connection: WireConnection) -> dict[str, tuple[int, int]]:
    """The partitions and bytes of each topic on one broker."""
    answer = connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    check(answer.error_code, None)
    found: dict[str, tuple[int, int]] = {}
    for directory in answer.results:
        check(directory.error_code, None)
        for topic in directory.topics:
            count, size = found.get(topic.name, (0, 0))
            own = sum(part.partition_size for part in topic.partitions)
            found[topic.name] = (count + len(topic.partitions), size + own)
    return found


def _decided(ask: Ask, decide: Callable[[ClusterImage], list[Move]]) -> tuple[ClusterImage, list[Move]]:
    with ask.cluster.connections() as connections:
        image = read_image(connections.any())
    return image, decide(image)


def _level_leaders(connection: WireConnection) -> Sequence[str]:
    places = led_by_others(read_image(connection))
    return elect_first_replicas(connection, places) if places else ()


def _lines(image: ClusterImage, moves: Sequence[Move]) -> list[str]:
    """The preview: where each partition is and will be."""
    lines = []
    for move in moves[:_MOVES_SHOWN_MAX]:
        state = image.partition(move.topic, move.partition)
        before = () if state is None else state.target
        lines.append(f"{move.topic}-{move.partition}: brokers {_nodes(before)} → {_nodes(move.replicas)}")
    more = len(moves) - _MOVES_SHOWN_MAX
    return [*lines, f"and {more:,} more"] if more > 0 else lines


def _nodes(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"


def _count(moves: int) -> str:
    return "1 partition" if moves == 1 else f"{moves:,} partitions"
