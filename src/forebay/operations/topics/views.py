"""Topics that are views, and their queries: brokers report them with the settings of topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from forebay.core.cluster.resources import ResourceType
from forebay.core.views.catalog import KEEP_TOMBSTONES, MATERIALIZE, SELECT, SOURCE, WHERE
from forebay.errors import ErrorCode
from forebay.lazy import dataclass
from forebay.operations.client import REQUEST_SECONDS, Client, CommandError, join_address, settle
from forebay.operations.messages.log_offsets import Place, ends_of
from forebay.operations.wire import BrokerConnections, WireConnection, check
from forebay.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from forebay.wire.messages.describe_fills import DescribeFillsRequest, DescribeFillsResponse
from forebay.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    name: str
    source: str
    where: str | None
    select: str | None
    keep_tombstones: bool
    materialized: bool = False


def read_views(connection: WireConnection, names: Collection[str] | None = None) -> dict[str, View]:
    """The views with these names, or all views."""
    wanted = sorted(_all_names(connection) if names is None else names)
    if not wanted:
        return {}
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=ResourceType.TOPIC,
                resource_name=name,
                configuration_keys=[SOURCE, WHERE, SELECT, KEEP_TOMBSTONES, MATERIALIZE],
            )
            for name in wanted
        ]
    )
    views = {}
    for found in connection.ask(request, DescribeConfigsResponse).results:
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue  # deleted meanwhile
        check(found.error_code, found.error_message)
        settings = {config.name: config.value for config in found.configs}
        if SOURCE in settings:
            views[found.resource_name] = View(
                name=found.resource_name,
                source=settings[SOURCE] or "",
                where=settings.get(WHERE),
                select=settings.get(SELECT),
                keep_tombstones=settings.get(KEEP_TOMBSTONES) == "true",
                materialized=settings.get(MATERIALIZE) == "true",
            )
    return views


def existing_view(connection: WireConnection, name: str) -> View:
    """Raises CommandError if there is no such view."""
    found = read_views(connection, [name]).get(name)
    if found is None:
        raise CommandError(f"there is no view {name}: `forebay view list` shows those that there are")
    return found


def create_view(
    admin: AdminClient,
    view: View,
    *,
    replication_factor: int | None = None,
    configs: Mapping[str, str] | None = None,
) -> None:
    from confluent_kafka.admin import NewTopic

    settings = {SOURCE: view.source, WHERE: view.where, SELECT: view.select}
    query = {key: value for key, value in settings.items() if value is not None}
    if view.keep_tombstones:
        query[KEEP_TOMBSTONES] = "true"
    if view.materialized:
        query |= {MATERIALIZE: "true", **(configs or {})}
    new = NewTopic(view.name, num_partitions=-1, replication_factor=replication_factor or -1, config=query)
    settle(admin.create_topics([new], request_timeout=REQUEST_SECONDS)[view.name])


def view_lags(admin: AdminClient, source: str, ends: Mapping[Place, int]) -> dict[int, int]:
    """The number of offsets of its source that each partition of a materialized view has not reached yet."""
    _, source_ends = ends_of(admin, [(source, index) for _, index in ends])
    return {
        index: max(source_ends.found[source, index] - end, 0)
        for (_, index), end in ends.items()
        if (source, index) in source_ends.found
    }


def read_stops(client: Client, admin: AdminClient, name: str) -> dict[int, str]:
    """Why partitions of a materialized view are not being filled, as their leaders say; only those."""
    metadata = client.metadata(admin)
    brokers = {part.leader for part in metadata.topics[name].partitions.values()} & metadata.brokers.keys()
    request, stops = DescribeFillsRequest(topic=name), dict[int, str]()
    with closing(BrokerConnections(client)) as connections:
        for broker in sorted(brokers):
            node = metadata.brokers[broker]
            try:
                connection = connections.at(join_address(str(node.host), node.port))
                if connection.serves(DescribeFillsRequest):
                    found = connection.ask(request, DescribeFillsResponse).partitions
                    stops |= {each.partition_index: each.problem for each in found if each.reason}
            except CommandError:
                continue  # the rest of the description still helps
    return stops


def _all_names(connection: WireConnection) -> Sequence[str]:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = connection.ask(request, MetadataResponse)
    return [topic.name for topic in answer.topics if topic.name is not None]
