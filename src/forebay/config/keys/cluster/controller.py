"""The settings of elections and of reassignments, with Kafka's names and defaults.

The controller reads them; give every broker the same, or set them for the whole cluster if they can be
changed at run time.
"""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import Value, bool_key, int_key, list_key, long_key

DRAINED = "forebay.drained.brokers"


def _node_ids(value: Value) -> None:
    assert isinstance(value, tuple)
    for item in value:
        if not item.isdigit():
            raise ValueError(f"{item!r} is no broker, use ids such as 4,5")


def not_zero(value: Value) -> None:
    if value == 0:
        raise ValueError("0 is not allowed, use -1 or a count from 1")


DRAINED_KEY = list_key(
    DRAINED,
    (),
    "Brokers that are about to leave, and get no new partitions; `forebay cluster drain` lists them"
    " here, and one that is started again takes itself off. Set it for all brokers.",
    validate=_node_ids,
    dynamic=True,
)


@settings_group
class ControllerConfig:
    unclean_election: bool = bool_key(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may lead when no other is left; messages are lost then.",
        dynamic=True,
    )
    """For topics that do not set it."""
    min_insync_replicas: int = int_key(
        "min.insync.replicas",
        -1,
        "Replicas that must hold a message before acks=all is answered; -1 means a majority of them.",
        -1,
        32767,
        validate=not_zero,
        dynamic=True,
    )
    """Likewise; -1 means a majority of the replicas."""
    rebalance_leaders: bool = bool_key(
        "auto.leader.rebalance.enable",
        True,
        "Whether leadership goes back to the first replica of a partition once that is in sync again.",
    )
    imbalance_check_interval_s: int = long_key(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often it is checked whether leadership should go back to first replicas.",
        1,
    )
    imbalance_percent_max: int = int_key(
        "leader.imbalance.per.broker.percentage",
        10,
        "The share of a broker's own partitions that others may lead before leadership goes back to it.",
        0,
        100,
    )
    deleted_topics_retention_ms: int = long_key(
        "forebay.deleted.topics.retention.ms",
        90 * 24 * 3600 * 1000,
        "How long the cluster remembers that a topic was deleted. A broker that comes back later puts the"
        " logs of such topics aside and does not delete them: longer than the longest absence of a broker.",
        0,
        dynamic=True,
    )
    deleted_topics_max: int = int_key(
        "forebay.deleted.topics.max",
        10_000,
        "How many deleted topics the cluster remembers; beyond that the oldest are forgotten.",
        0,
        1_000_000,
        dynamic=True,
    )
    verdicts_per_minute_max: int = int_key(
        "forebay.failover.verdicts.per.minute",
        3,
        "How often in a minute a broker may be counted as dead because connections to it are refused; beyond"
        " that, and with 0, its lease decides.",
        0,
        60,
    )
