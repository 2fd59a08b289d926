"""The table of APIs: each row names a handler that there is, and the parts that it takes."""

from __future__ import annotations

import inspect
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.api_table import APIS, handler, open_endpoint
from forebay.broker.composition.coordinators import TOPICS
from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.wire.api_keys import ApiKey
from forebay.wire.messages import API_KEYS, api, api_name
from support.brokers.local_broker import local_broker
from support.clients.wire_client import WireClient

STRUCTURAL = {
    "Disk",
    "TokenService",
    "Callable[[], ViewOffsets]",
    "Callable[[], RemoteOffsets | None]",
    "Callable[[], Adoption]",
    "Callable[[Partition, int], Awaitable[None]]",
}
"""What handlers name by what it can do, not by its class."""


def misfits(node: Node, api_key: int) -> list[str]:
    """The parameters of a handler that are given something else than they are declared as."""
    names = APIS[api_key].needs.split()
    parameters = list(inspect.signature(handler(api_key)).parameters.values())
    assert len(parameters) == len(names) + len(("context", "request")), api_name(api_key)
    return [
        f"{api_name(api_key)}: {name} is no {parameter.annotation}"
        for name, parameter in zip(names, parameters, strict=False)
        if not is_a(attrgetter(name)(node), parameter.annotation)
    ]


def is_a(part: Any, annotation: str) -> bool:
    wanted = annotation.rpartition(".")[2]
    return annotation in STRUCTURAL or wanted in {each.__name__ for each in type(part).__mro__}


def test_every_handler_is_given_the_parts_that_it_takes(tmp_path: Path) -> None:
    with local_broker(tmp_path) as broker:
        found = broker.on_loop(lambda node: [each for key in APIS for each in misfits(node, key)])
    assert found == []


def test_a_coordinator_is_made_for_the_topic_that_it_keeps_its_state_on(tmp_path: Path) -> None:
    with local_broker(tmp_path) as broker:
        topics = broker.on_loop(lambda node: {name: getattr(node, name).coordinator.topic for name in TOPICS})
    assert topics == TOPICS


def test_a_client_cannot_send_what_only_brokers_send(tmp_path: Path) -> None:
    own = [key for key, served in APIS.items() if served.from_broker]
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        codes = {api_name(key): client.call(api(key).request(), 0).error_code for key in own}
    assert codes == dict.fromkeys(
        ("FoldedProduce", "FoldedProducers", "AppendCopies", "HandOverNumbers"),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )


def test_what_is_not_in_the_table_is_not_opened() -> None:
    assert open_endpoint(lambda _: None, ApiKey.VOTE) is None
    assert open_endpoint(lambda _: None, 12_345) is None


@pytest.mark.parametrize("key", APIS, ids=api_name)
def test_the_served_versions_are_declared(key: int) -> None:
    declared = api(key)
    assert declared.min_version <= APIS[key].min_version <= APIS[key].max_version <= declared.max_version


def test_keys_have_the_names_that_kafka_gives_them() -> None:
    assert [api_name(key) for key in (ApiKey.FETCH, ApiKey.LEADER_AND_ISR, 92)] == [
        "Fetch",
        "LeaderAndIsr",
        "DeleteShareGroupOffsets",
    ]
    assert api_name(31_000) == "API 31000"
    assert ApiKey.VOTE not in API_KEYS
