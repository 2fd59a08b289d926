"""confluent-kafka's own classes, with something done around each call into them.

What is done is a function that gets the name of the call, and the call itself: it may raise before or after
it, or wait. Results are those of the real client, on a real broker.
"""

from __future__ import annotations

from collections.abc import Callable
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
    "poll",
    "consume",
    "commit",
    "committed",
    "store_offsets",
    "seek",
    "assignment",
    "consumer_group_metadata",
    "close",
)

Around = Callable[[str, Callable[[], Any]], Any]


def hooked(kind: Any, calls: tuple[str, ...], around: Around) -> Any:
    """The same class; `around` is told "Consumer.poll" and the like."""

    def hook(name: str) -> Any:
        real = getattr(kind, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            return around(f"{kind.__name__}.{name}", lambda: real(self, *arguments, **options))

        return call

    return type(kind.__name__, (kind,), {name: hook(name) for name in calls})


def hook_clients(monkeypatch: pytest.MonkeyPatch, around: Around) -> None:
    """Every producer and consumer that is made from now on, until the end of the test."""
    for kind, calls in (
        (confluent_kafka.Producer, PRODUCER_CALLS),
        (confluent_kafka.Consumer, CONSUMER_CALLS),
    ):
        monkeypatch.setattr(confluent_kafka, kind.__name__, hooked(kind, calls, around))
