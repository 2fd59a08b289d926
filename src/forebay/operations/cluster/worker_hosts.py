"""The workers of each host, as the brokers of a cluster tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.cluster.image import ClusterImage
from forebay.lazy import dataclass
from forebay.operations.client import CommandError
from forebay.operations.cluster.cluster_state import broker_loads
from forebay.operations.settings import read_configs

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoad:
    host: str
    number: int
    """Among the workers of its host; 0 for a broker that is the only one."""
    broker: int
    address: str
    drained: bool
    leaders: int
    replicas: int


def read_workers(admin: AdminClient, image: ClusterImage) -> list[WorkerLoad]:
    """Every live broker, host by host."""
    found = [
        WorkerLoad(
            host=image.brokers[each.id].host,
            number=_number(admin, each.id),
            broker=each.id,
            address=each.address,
            drained=each.drained,
            leaders=each.leaders,
            replicas=each.replicas,
        )
        for each in broker_loads(image)
        if each.alive
    ]
    return sorted(found, key=lambda each: (each.host, each.number, each.broker))


def workers_of(loads: list[WorkerLoad], host: str | None) -> list[WorkerLoad]:
    """Those of one host. Raises CommandError if it is not clear which, or has no workers."""
    hosts = sorted({each.host for each in loads if each.number})
    if host is None and len(hosts) > 1:
        raise CommandError(f"which host? Name one of {', '.join(hosts)} with --host")
    chosen = [each for each in loads if each.number and (host is None or each.host == host)]
    if not chosen:
        where = "" if host is None else f" on {host}"
        raise CommandError(f"no workers run{where}: start them with `forebay serve --workers N`")
    return chosen


def _number(admin: AdminClient, broker: int) -> int:
    values = {each["name"]: each["value"] for each in read_configs(admin, "broker", str(broker))}
    return int(values.get("forebay.worker") or 0)
