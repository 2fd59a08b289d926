"""Writes down what programs on forebay.client do and see, as a history for `chaos/checker.py` to judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from forebay.client import Delivery, Message
from support.chaos.history import Ack, History, Place, Read, Send, Transaction
from support.clients.hooked_kafka import Call


class Recorder:
    """Stands around the calls that are really made, those of one program."""

    def __init__(self, delivery: Delivery) -> None:
        self.history = History()
        self.delivery = delivery
        self._producers: dict[int, str] = {}
        self._sent: Counter[str] = Counter()
        self._open: dict[str, str] = {}
        self._stretches: Counter[Place] = Counter()
        self._rebalances = 0
        self.silent = 0
        """Fetches in a row that brought nothing."""
        self._kept: list[Any] = []

    def around(self, call: Call) -> Any:
        record = getattr(self, f"_{call.name.partition('.')[2]}", Call.run)
        return record(call)

    # -- producers ---------------------------------------------------------------------------------------

    def _name(self, producer: Any) -> str:
        if id(producer) not in self._producers:
            self._kept.append(producer)  # or its id could come again
            self._producers[id(producer)] = f"producer-{len(self._producers)}"
        return self._producers[id(producer)]

    def _produce(self, call: Call) -> Any:
        name = self._name(call.target)
        topic, value = call.arguments[:2]
        self.history.sends[_bytes(value)] = Send(
            producer=name,
            number=self._sent[name],
            place=(topic, call.options["partition"]),
            exactly_once=self.delivery != "at-most-once",
            transaction=self._open.get(name),
        )
        self._sent[name] += 1
        if self.delivery != "at-most-once":
            call.options["on_delivery"] = self._noting(call.options["on_delivery"])
        return call.run()

    def _noting(self, tell: Callable[[KafkaError | None, Any], None]) -> Callable[..., None]:
        def note(error: KafkaError | None, message: Any) -> None:
            if error is None:
                place = (message.topic(), message.partition())
                self.history.acks.append(Ack(message.value(), place, message.offset()))
            tell(error, message)

        return note

    def _begin_transaction(self, call: Call) -> None:
        call.run()
        name = self._name(call.target)
        self._open[name] = f"{name}.{len(self.history.transactions)}"
        self.history.transactions[self._open[name]] = Transaction()

    def _commit_transaction(self, call: Call) -> None:
        transaction = self.history.transactions.get(self._open.get(self._name(call.target), ""))
        if transaction is not None and transaction.commit_begun is None:
            transaction.commit_begun = self.history.tick()
        call.run()
        assert transaction is not None
        transaction.outcome = "committed"
        del self._open[self._name(call.target)]

    def _abort_transaction(self, call: Call) -> None:
        call.run()
        self.history.transactions[self._open.pop(self._name(call.target))].outcome = "aborted"

    # -- consumers ---------------------------------------------------------------------------------------

    def _subscribe(self, call: Call) -> Any:
        self._rebalances += 1
        for name in ("on_revoke", "on_lost"):
            call.options[name] = self._counting(call.options[name])
        return call.run()

    def _counting(self, tell: Callable[..., None]) -> Callable[..., None]:
        def taken_away(*arguments: Any) -> None:
            self._rebalances += 1
            tell(*arguments)

        return taken_away

    def _poll(self, call: Call) -> Any:
        result = call.run()
        if call.name == "Consumer.poll":
            self.silent = self.silent + 1 if result is None else 0
        return result

    def _seek(self, call: Call) -> Any:
        (partition,) = call.arguments
        self.silent = 0
        self._stretches[partition.topic, partition.partition] += 1
        return call.run()

    def read(self, message: Message, group: str) -> None:
        """The program was given this message. Of at-most-once, nobody promises that none is missing."""
        place = (message.topic, message.partition)
        self.history.reads.append(
            Read(
                consumer=f"{group}-{self._rebalances}-{self._stretches[place]}",
                place=place,
                offset=message.offset,
                value=message.value or b"",
                at=self.history.tick(),
                group=None if self.delivery == "at-most-once" else group,
            )
        )

    def interrupted(self) -> None:
        """With at-most-once, what a failed call had been given is gone."""
        if self.delivery == "at-most-once":
            self._rebalances += 1

    def finish(self) -> None:
        """What became of the transactions that no producer was told of is not known."""
        for transaction in self.history.transactions.values():
            if transaction.outcome == "open":
                transaction.outcome = "aborted" if transaction.commit_begun is None else "unknown"


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
