"""Many decisions about single partitions, written together: each has an outcome of its own.

They go to the store in as few transactions as fit. Where somebody was faster, what was lost is decided
again, one by one, on what that somebody made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from forebay.core.image import ClusterImage, PartitionPut
from forebay.errors import KafkaError

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

Place = tuple[str, int]
"""Topic and partition."""
Decide = Callable[[ClusterImage], list[PartitionPut]]
"""For one partition: its change, or none; raises KafkaError when it is refused."""


async def carry_out_each(broker: Broker, decisions: Mapping[Place, Decide]) -> dict[Place, KafkaError | None]:
    """The error of each decision, or None for those that are carried out and visible here."""
    errors: dict[Place, KafkaError | None] = dict.fromkeys(decisions)
    planned: dict[Place, PartitionPut] = {}
    for place, decide in decisions.items():
        try:
            planned.update((place, change) for change in decide(broker.image))
        except KafkaError as error:
            errors[place] = error
    try:
        failed = await broker.metadata.change_all(list(planned.values()))
    except KafkaError as error:
        return errors | dict.fromkeys(planned, error)
    overtaken = {id(change) for change in failed}
    for place, change in planned.items():
        if id(change) in overtaken:
            errors[place] = await _again(broker, decisions[place])
    return errors


async def _again(broker: Broker, decide: Decide) -> KafkaError | None:
    try:
        await broker.metadata.change(decide)
    except KafkaError as error:
        return error
    return None
