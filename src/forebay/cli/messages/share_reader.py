"""`forebay consume TOPIC --share GROUP`: messages of a queue to standard output.

A message is accepted after it was written and flushed, so none is lost when the reader of the pipe goes away.
Messages acquired beyond the requested number are released at once; they count as delivered.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO

import click

from forebay.cli.client import Client, CommandError, failed
from forebay.operations.messages.message_formats import Line, line_of

if TYPE_CHECKING:
    from confluent_kafka import AcknowledgeType, KafkaError, Message, ShareConsumer

POLL_SECONDS = 0.2
BATCH_MESSAGES = 500
ACKNOWLEDGE_SECONDS = 30.0


def read_share(
    client: Client,
    topic: str,
    group: str,
    writer: Callable[[Line], bytes],
    *,
    count: int | None,
    timeout_s: float | None,
) -> None:
    from forebay.client.closing import close_share_consumer

    client.partitions(client.admin(), topic)
    most = BATCH_MESSAGES if count is None else min(BATCH_MESSAGES, count)
    consumer = client.share_consumer(
        {"group.id": group, "share.acknowledgement.mode": "explicit", "max.poll.records": most}
    )
    try:
        consumer.subscribe([topic])
        ShareReader(consumer, count=count, timeout_s=timeout_s).run(writer, sys.stdout.buffer)
    except KeyboardInterrupt:
        return
    finally:
        close_share_consumer(consumer)


class ShareReader:
    """Takes messages until it has enough: a count, silence, or never."""

    def __init__(self, consumer: ShareConsumer, *, count: int | None, timeout_s: float | None) -> None:
        self._consumer = consumer
        self._left = count
        self._timeout_s = timeout_s

    def run(self, writer: Callable[[Line], bytes], out: BinaryIO) -> None:
        from confluent_kafka import AcknowledgeType

        heard = time.monotonic()
        while self._left != 0:
            messages = self._poll()
            if messages:
                wanted = messages[: self._left]
                out.write(b"".join(writer(line_of(message)) for message in wanted))
                out.flush()
                self._acknowledge(wanted, AcknowledgeType.ACCEPT)
                self._acknowledge(messages[len(wanted) :], AcknowledgeType.RELEASE)
                self._commit()
                if self._left is not None:
                    self._left -= len(wanted)
                heard = time.monotonic()
            elif self._timeout_s is not None and time.monotonic() - heard >= self._timeout_s:
                return

    def _poll(self) -> list[Message]:
        from confluent_kafka import KafkaException

        messages = []
        try:
            polled = self._consumer.poll(POLL_SECONDS)
        except KafkaException as error:
            raise failed(error) from None
        for message in polled:
            problem = message.error()
            if problem is None:
                messages.append(message)
            else:
                _raise_fatal(problem)
        return messages

    def _acknowledge(self, messages: Sequence[Message], kind: AcknowledgeType) -> None:
        for message in messages:
            self._consumer.acknowledge(message, kind)

    def _commit(self) -> None:
        """A partition whose acknowledgements failed is named: its messages come again."""
        from confluent_kafka import KafkaException

        try:
            results = self._consumer.commit_sync(ACKNOWLEDGE_SECONDS)
        except KafkaException as error:
            raise failed(error) from None
        for place, problem in results.items():
            if problem is not None:
                click.echo(
                    f"{place.topic}-{place.partition}: not accepted, and will come again: {failed(problem)}",
                    err=True,
                )


def _raise_fatal(error: KafkaError) -> None:
    from confluent_kafka import KafkaError

    if not error.retriable() and error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
        raise CommandError(f"{error.str().rstrip('.')} ({error.name()})")
