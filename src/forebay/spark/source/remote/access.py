"""Finds the object store of topics, by the options of a read or by asking brokers."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import NamedTuple

from forebay.errors import ConfigError, KafkaError
from forebay.spark.source.offset_lookup import offsets_at
from forebay.spark.source.offset_ranges import LATEST_TIERED, TopicPartition
from forebay.spark.source.remote_options import NEVER, ONLY, RemoteOptions
from forebay.spark.wire.connections import Cluster
from forebay.tiers.object_store import ObjectStoreError
from forebay.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

log = logging.getLogger(__name__)

_URL = "forebay.remote.url"
_BROKER = 4


class Place(NamedTuple):
    url: str
    partitions: frozenset[TopicPartition]
    """Those that may have parts there."""


def place_of(
    cluster: Cluster, options: RemoteOptions, partitions: Collection[TopicPartition]
) -> Place | None:
    """The store where parts of these partitions may lie; None if there is none to be read.

    Raises KafkaError if the brokers do not say: they cannot at the moment, or not to this user.
    """
    if options.read == NEVER or not partitions:
        return None
    if options.url:
        return Place(options.url, frozenset(partitions))
    found = _announced(cluster, partitions)
    if found is None and options.read == ONLY:
        raise ConfigError(
            "readRemote=only: the brokers name no object store for these topics; give its place as remoteUrl"
        )
    return found


def _announced(cluster: Cluster, partitions: Collection[TopicPartition]) -> Place | None:
    """The answer of the brokers; None if nothing is remote.

    Where nothing is, which every reader may know, the settings of brokers are not asked for.
    """
    ends = offsets_at(cluster, dict.fromkeys(partitions, LATEST_TIERED))
    tiered = frozenset(at for at, offset in ends.items() if offset >= 0)
    url = cluster.attempt(lambda: _url(cluster)) if tiered else ""
    return Place(url, tiered) if url else None


def _url(cluster: Cluster) -> str:
    """Each broker tells its own settings only; all have the same place."""
    node_id = cluster.node_ids()[0]
    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(node_id), configuration_keys=[_URL]
    )
    (result,) = cluster.broker(node_id).ask(DescribeConfigsRequest(resources=[resource])).results
    return next((each.value or "" for each in result.configs if each.name == _URL), "")


def unreachable(options: RemoteOptions, error: ObjectStoreError | KafkaError) -> None:
    """Fail, or go on with the brokers, as readRemote says."""
    unsaid = isinstance(error, KafkaError)
    if options.read != ONLY:
        level = logging.INFO if unsaid else logging.WARNING
        log.log(level, "%s; reading from the brokers instead (readRemote=auto)", error)
    elif unsaid:
        raise ConfigError(f"readRemote=only: {error}; give the place of the object store as remoteUrl")
    else:
        raise error
