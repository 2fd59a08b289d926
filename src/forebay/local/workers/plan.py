"""Plans the workers of a host: each gets a folder, ports, a number, and the settings of the host.

Worker 1 has the data directory itself, as a broker that is alone has, and worker n the folder `workers/n` in
it. So a host goes from one worker to several and back without moving a file. All of them accept at the ports
of the listeners; beside these, worker n has the port plus n times `forebay.workers.port.step` for itself, and
that is what clients are sent to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from forebay.config import BrokerConfig, Listener, Source
from forebay.config.listeners import EVERY_INTERFACE
from forebay.errors import ConfigError
from forebay.lazy import dataclass

FOLDER = "workers"
_PORT_MAX = 65_535
_STEPS_TRIED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    number: int
    settings: Mapping[str, str]
    ports: Mapping[str, int]
    """Its own port of each listener, by the listener's name."""
    metrics: tuple[str, int] | None
    """Where it serves its own metrics."""


def data_dir(host_dir: Path, number: int) -> Path:
    """The folder of a worker."""
    return host_dir if number == 1 else host_dir / FOLDER / str(number)


def worker_plans(
    config: BrokerConfig, free_ports: Mapping[str, Sequence[int]], host_name: str
) -> list[WorkerPlan]:
    """`free_ports` has ports for the listeners, and for metrics under "", that are to listen at any port.

    Raises ConfigError if ports meet, or if clients could not be sent to a worker.
    """
    _check_ports(config)
    numbers = range(1, config.workers.count + 1)
    return [_worker_plan(config, number, free_ports, host_name) for number in numbers]


def _worker_plan(
    config: BrokerConfig, number: int, free_ports: Mapping[str, Sequence[int]], host_name: str
) -> WorkerPlan:
    node, offset = config.node, config.workers.port_step * number
    ports = {
        each.name: each.port + offset if each.port else free_ports[each.name][number - 1]
        for each in node.listeners.all
    }
    own = [replace(each, port=ports[each.name]) for each in node.listeners.all]
    given = config.layers[Source.STATIC_BROKER_CONFIG]
    settings = {
        **_defaults(config, host_name),
        **given,
        "forebay.worker": str(number),
        "log.dirs": str(data_dir(node.data_dir, number)),
        "listeners": ",".join(map(str, own)),
        "advertised.listeners": ",".join(str(_advertised(config, each, offset)) for each in own),
    }
    if node.node_id is not None:
        settings["node.id"] = str(node.node_id + number - 1)
    metrics = None
    if node.metrics is not None:
        host, port = node.metrics
        metrics = host, port + offset if port else free_ports[""][number - 1]
        settings["forebay.metrics.listener"] = _address(*metrics)
    return WorkerPlan(number=number, settings=settings, ports=ports, metrics=metrics)


def _defaults(config: BrokerConfig, host_name: str) -> dict[str, str]:
    """Settings of workers, unless they are set otherwise."""
    if config.cluster.url is None:
        return {
            # All on one disk: a second replica would take room, and save nothing but the time of a restart.
            "default.replication.factor": "1",
            # The end of a process ends its lease at once. This is for one that hangs, and must be longer
            # than a busy machine may keep a process waiting.
            "forebay.lease.ttl.ms": "30000",
        }
    # Replicas of a partition are to be on different hosts.
    return {"broker.rack": host_name}


def _advertised(config: BrokerConfig, own: Listener, offset: int) -> Listener:
    """Where clients are sent. Without it they would be told the port that they came by, which all share."""
    told = config.node.listeners.advertised.get(own.name)
    if told is not None:
        return replace(told, port=told.port + offset)
    if own.host in EVERY_INTERFACE:
        raise ConfigError(
            f"clients have to be sent to single workers of this host: add {own.name}://, with the host's "
            "name or address and the port that all workers share, to advertised.listeners"
        )
    return own


def _check_ports(config: BrokerConfig) -> None:
    step, count = config.workers.port_step, config.workers.count
    bases = [each.port for each in config.node.listeners.all if each.port]
    if config.node.metrics is not None and config.node.metrics[1]:
        bases.append(config.node.metrics[1])
    if bases and max(bases) + step * count > _PORT_MAX:
        raise ConfigError(
            f"worker {count} would have the port {max(bases) + step * count}, and there is none above "
            f"{_PORT_MAX}: give lower ports, or a smaller forebay.workers.port.step"
        )
    if _are_apart(bases, step, count):
        return
    better = next((each for each in range(1, _STEPS_TRIED) if _are_apart(bases, each, count)), None)
    hint = f"set forebay.workers.port.step={better}" if better else "give ports that are further apart"
    raise ConfigError(
        f"with {count} workers, each with ports of its own, {step} apart, some of them are the same: {hint}"
    )


def _are_apart(bases: Sequence[int], step: int, count: int) -> bool:
    ports = list(_all_ports(bases, step, count))
    return len(set(ports)) == len(ports)


def _all_ports(bases: Sequence[int], step: int, count: int) -> Iterator[int]:
    """The shared ports, and those of each worker."""
    for base in bases:
        yield from range(base, base + step * count + 1, step)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
