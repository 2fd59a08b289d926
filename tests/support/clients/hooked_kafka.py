"""Classes of confluent-kafka, with something done around each call into them.

What is done is a function that gets the call: it may raise before or after it, or wait. Results are those of
the class itself, usually the real client on a real broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import pytest

PRODUCER_CALLS = (
    "init_transactions",
    "begin_transaction",
    "produce",
    "poll",
    "flush",
    "purge",
    "send_offsets_to_transaction",
    "commit_transaction",
    "abort_transaction",
)
CONSUMER_CALLS = (
    "subscribe",
    "poll",
    "consume",
    "assign",
    "incremental_assign",
    "commit",
    "committed",
    "offsets_for_times",
    "store_offsets",
    "seek",
    "assignment",
    "consumer_group_metadata",
    "close",
)


@dataclass(slots=True)
class Call:
    name: str
    """Consumer.poll, for example."""
    target: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    real: Callable[..., Any]

    def run(self) -> Any:
        return self.real(self.target, *self.arguments, **self.options)


Around = Callable[[Call], Any]


def hooked(kind: Any, calls: tuple[str, ...], around: Around) -> Any:
    """The same class, of which these calls go through `around`."""

    def hook(name: str) -> Any:
        real = getattr(kind, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            return around(Call(f"{kind.__name__}.{name}", self, arguments, options, real))

        return call

    return type(kind.__name__, (kind,), {name: hook(name) for name in calls})


def hook_clients(
    monkeypatch: pytest.MonkeyPatch,
    around: Around,
    producer: Any = confluent_kafka.Producer,
    consumer: Any = confluent_kafka.Consumer,
) -> None:
    """Every producer and consumer that forebay.client makes from now on, until the end of the test."""
    monkeypatch.setattr(confluent_kafka, "Producer", hooked(producer, PRODUCER_CALLS, around))
    monkeypatch.setattr(confluent_kafka, "Consumer", hooked(consumer, CONSUMER_CALLS, around))
