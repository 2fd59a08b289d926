"""The settings of elections and of moving partitions, with Kafka's names and defaults.

They are read by the broker that is the controller; give every broker the same, or set them for the whole
cluster where they can be changed at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forebay.config.values import ConfigType, Definition, Value

DRAINED = "forebay.drained.brokers"


def _node_ids(value: Value) -> None:
    assert isinstance(value, tuple)
    for item in value:
        if not item.isdigit():
            raise ValueError(f"{item!r} is no broker, use ids such as 4,5")


CONTROLLER_KEYS = (
    Definition(
        name=DRAINED,
        type=ConfigType.LIST,
        default=(),
        doc="Brokers that are about to leave, and get no new partitions; `forebay cluster drain` lists them"
        " here, and one that is started again takes itself off. Set it for all brokers.",
        validate=_node_ids,
        dynamic=True,
    ),
    Definition(
        name="unclean.leader.election.enable",
        type=ConfigType.BOOLEAN,
        default=False,
        doc="Whether a replica that is not in sync may lead when no other is left; messages are lost then.",
        dynamic=True,
    ),
    Definition(
        name="auto.leader.rebalance.enable",
        type=ConfigType.BOOLEAN,
        default=True,
        doc="Whether leadership goes back to the first replica of a partition once that is in sync again.",
    ),
    Definition(
        name="leader.imbalance.check.interval.seconds",
        type=ConfigType.LONG,
        default=300,
        minimum=1,
        doc="How often it is checked whether leadership should go back to first replicas.",
    ),
    Definition(
        name="leader.imbalance.per.broker.percentage",
        type=ConfigType.INT,
        default=10,
        minimum=0,
        maximum=100,
        doc="The share of a broker's own partitions that others may lead before leadership goes back to it.",
    ),
    Definition(
        name="leader.replication.throttled.rate",
        type=ConfigType.LONG,
        default=None,
        minimum=1,
        doc="The most bytes per second that this broker sends to replicas that are catching up; "
        "without a value there is no limit.",
        dynamic=True,
    ),
    Definition(
        name="follower.replication.throttled.rate",
        type=ConfigType.LONG,
        default=None,
        minimum=1,
        doc="The most bytes per second that this broker copies for replicas that are catching up; "
        "without a value there is no limit.",
        dynamic=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    unclean_election: bool = False
    """For topics that do not say it themselves."""
    min_insync_replicas: int = -1
    """Likewise; -1 means a majority of the replicas."""
    rebalance_leaders: bool = True
    imbalance_check_interval_s: int = 300
    imbalance_percent_max: int = 10


def controller_config(values: Mapping[str, Any]) -> ControllerConfig:
    return ControllerConfig(
        unclean_election=values["unclean.leader.election.enable"],
        min_insync_replicas=values["min.insync.replicas"],
        rebalance_leaders=values["auto.leader.rebalance.enable"],
        imbalance_check_interval_s=values["leader.imbalance.check.interval.seconds"],
        imbalance_percent_max=values["leader.imbalance.per.broker.percentage"],
    )
