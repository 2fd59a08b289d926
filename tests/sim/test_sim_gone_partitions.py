"""Stories in which partitions are folded, emptied and taken away, while producers and groups go on."""

from __future__ import annotations

from typing import TypeVar

import pytest

from forebay.broker.ports import Address
from forebay.errors import ErrorCode
from forebay.sim.actors.client import Client
from forebay.sim.actors.folding import Emptier
from forebay.sim.models.facts import Sent
from forebay.sim.models.messages import Model
from forebay.sim.simulation import Story, simulate
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.places import FOLDED, FOLDED_TO
from forebay.sim.world.virtual_time import World
from forebay.wire.fields import Request, Response
from forebay.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from forebay.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from support.sim.processes import finish, process_on

R = TypeVar("R", bound=Response)

TOPIC, CLOSED = FOLDED[0][0], FOLDED[FOLDED_TO:]


def test_closed_partitions_disappear_in_the_middle_of_a_story() -> None:
    lines: list[str] = []
    ending = simulate(Story(seed=1, plot="gone-partitions"), on_line=lines.append)
    assert ending.breach is None, ending.breach
    gone = next(number for number, line in enumerate(lines) if line.endswith("folding has 2 partitions"))
    sent = [line for line in lines[gone:] if " net folded-a:" in line]
    assert sent, "producers go on behind it"


# -- the model of them -------------------------------------------------------------------------------------


class LateClient(Client):
    """Fetches nothing of the closed partitions before they are removed."""

    async def ask(
        self, address: Address, request: Request, response: type[R], version: int | None = None
    ) -> R:
        answer = resized() if isinstance(request, CreatePartitionsRequest) else open_partitions()
        assert isinstance(answer, response)
        return answer


def resized() -> CreatePartitionsResponse:
    result = CreatePartitionsTopicResult(name=TOPIC, error_code=ErrorCode.NONE)
    return CreatePartitionsResponse(throttle_time_ms=0, results=[result])


def open_partitions() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=1,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
        )
        for _, index in FOLDED[:FOLDED_TO]
    ]
    topic = MetadataResponseTopic(
        error_code=ErrorCode.NONE, name=TOPIC, topic_id=bytes(16), is_internal=False, partitions=partitions
    )
    broker = MetadataResponseBroker(node_id=1, host="node1", port=9092)
    return MetadataResponse(throttle_time_ms=0, brokers=[broker], cluster_id=None, topics=[topic])


def test_the_model_knows_a_partition_that_was_removed_before_it_was_read(
    world: World, network: SimNetwork
) -> None:
    process, model = process_on(world, network, "emptier"), Model(world.fail, FOLDED)
    client = LateClient(process, "emptier", [("node1", 9092)])
    finish(world, process, Emptier(client, model, TOPIC, counts=()).run)
    assert set(model.folds.removed.positions) == set(CLOSED)


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_an_acknowledged_message_must_not_go_with_a_partition_that_nobody_read(is_acknowledged: bool) -> None:
    breaches: list[str] = []
    model, at = Model(breaches.append, FOLDED), CLOSED[0]
    model.send(b"value", Sent(at=at, producer="a", number=1, exactly_once=True, sent_at=0.0))
    if is_acknowledged:
        model.acknowledge(b"value", 0)
    model.folds.removed.note_gone(at)
    model.finish({place: {} for place in FOLDED[:FOLDED_TO]}, {}, {})
    assert bool(breaches) is is_acknowledged
