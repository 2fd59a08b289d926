"""`forebay produce TOPIC`: one message per line of standard input or a file.

Lines go to librdkafka's bounded queue; when it is full the reading waits, so input of any length needs little
memory. With acks=all the producer is idempotent: a retry never duplicates or reorders a line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from forebay.cli.client import Client, CommandError, client_options, error_of, no_topic, pairs_option

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

LINE_BYTES_MAX = 64 * 1024 * 1024
DELIVERY_SECONDS = 30
CAUSE_SECONDS = 1.0
PROGRESS_SECONDS = 0.5
_ACKS = ("0", "1", "all")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Draft(NamedTuple):
    """A message before it has an offset."""

    key: bytes | None
    value: bytes | None


@click.command()
@click.argument("topic")
@click.option("-K", "--key-separator", metavar="TEXT", help="What stands between key and value on a line.")
@click.option("--key", metavar="TEXT", help="The same key for every message.")
@pairs_option("--header", "headers", metavar="NAME=VALUE", help="A header; may be repeated.")
@click.option("--null-marker", metavar="TEXT", help="A key or value that is exactly this is null.")
@click.option("--compression", type=click.Choice(_CODECS), default="none", show_default=True)
@click.option(
    "--acks", type=click.Choice(_ACKS), default="all", show_default=True, help="Whose word to wait for."
)
@click.option(
    "--partition", metavar="N", type=click.IntRange(min=0), help="The partition. [default: by the key's hash]"
)
@click.option(
    "--file", "source", type=click.File("rb"), default="-", help="Read this instead of standard input."
)
@client_options
def produce(
    topic: str,
    key_separator: str | None,
    key: str | None,
    headers: list[tuple[str, str]],
    null_marker: str | None,
    compression: str,
    acks: str,
    partition: int | None,
    source: BinaryIO,
    client: Client,
) -> None:
    """Send lines as messages to TOPIC.

    The topic is created if the broker allows it.

    \b
      echo 'hello' | forebay produce greetings
      forebay produce orders -K : --compression zstd --file orders.txt
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other")
    drafts = read_drafts(source, key=key, key_separator=key_separator, null_marker=null_marker)
    producer = client.producer(_settings(acks, compression, source))
    client.metadata(producer)  # Fails now, and clearly, where no broker is; a delivery would fail much later.
    delivery = Delivery(producer, topic, _place(partition, headers), _timeout_s(client))
    if source.isatty():
        click.echo("one message per line; Ctrl-D ends", err=True)
    try:
        delivery.send(drafts)
    finally:
        delivery.close()
    delivery.report()


def read_drafts(
    source: BinaryIO,
    *,
    key: str | None = None,
    key_separator: str | None = None,
    null_marker: str | None = None,
) -> Iterator[Draft]:
    """The messages in the input; a line without the separator is an error that names the line."""
    fixed_key = None if key is None else key.encode()
    separator = None if not key_separator else key_separator.encode()
    null = None if null_marker is None else null_marker.encode()
    for number, line in enumerate(_lines(source), 1):
        line_key, value = fixed_key, line
        if separator is not None:
            line_key, found, value = line.partition(separator)
            if not found:
                raise CommandError(f"line {number} has no {key_separator!r} between key and value")
        yield Draft(None if line_key == null else line_key, None if value == null else value)


def _lines(source: BinaryIO) -> Iterator[bytes]:
    number = 0
    while line := source.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise CommandError(f"line {number} is longer than {LINE_BYTES_MAX} bytes")
        yield line.removesuffix(b"\n")


def _settings(acks: str, compression: str, source: BinaryIO) -> dict[str, Any]:
    return {
        "acks": acks,
        "compression.type": compression,
        "enable.idempotence": acks == "all",
        # At a terminal each line goes out at once; a file is better sent in larger batches.
        "linger.ms": 0 if source.isatty() else 20,
        "message.timeout.ms": DELIVERY_SECONDS * 1000,
        # Generous, because the broker's message.max.bytes decides.
        "message.max.bytes": LINE_BYTES_MAX + 1024 * 1024,
    }


def _timeout_s(client: Client) -> float:
    """After which a message is given up: what the user said by either of its names, or ours."""
    for name in ("message.timeout.ms", "delivery.timeout.ms"):
        if name in client.properties:
            timeout_ms = int(client.properties[name])  # the library has taken it
            return timeout_ms / 1000 if timeout_ms else float("inf")
    return DELIVERY_SECONDS


def _place(partition: int | None, headers: Iterable[tuple[str, str]]) -> dict[str, Any]:
    place: dict[str, Any] = {}
    if partition is not None:
        place["partition"] = partition
    if encoded := [(name, value.encode()) for name, value in headers]:
        place["headers"] = encoded
    return place


class Delivery:
    """Sends drafts and counts the outcomes; ends early once something has failed."""

    def __init__(self, producer: Producer, topic: str, place: dict[str, Any], timeout_s: float) -> None:
        self._producer = producer
        self._timeout_s = timeout_s
        self._topic = topic
        self._place = place
        self._delivered = self._failed = 0
        self._error: KafkaError | None = None
        self._progress = _Progress()

    def send(self, drafts: Iterable[Draft]) -> None:
        for draft in drafts:
            self._enqueue(draft)
            self._serve(0)
            self._progress.show(self._delivered)
            if self._error is not None:
                return

    def close(self) -> None:
        """Waits for everything under way; librdkafka gives each message up after its timeout."""
        deadline = time.monotonic() + self._timeout_s + 5
        while len(self._producer) and time.monotonic() < deadline:
            self._serve(0.1)
        self._failed += len(self._producer)
        self._progress.clear()

    def _serve(self, seconds: float) -> None:
        """Serve delivery reports. librdkafka raises fatal errors: the producer may not even have an id."""
        from confluent_kafka import KafkaException

        try:
            self._producer.poll(seconds)
        except KafkaException as error:
            self._error = self._error or error_of(error)

    def report(self) -> None:
        if self._error is not None:
            click.echo(f"produced {count(self._delivered)} to {self._topic}, {self._failed} failed", err=True)
            raise self._explain(self._error)
        if self._failed:
            raise CommandError(
                f"{count(self._failed)} could not be delivered in time: is the broker still there?"
            )
        click.echo(f"produced {count(self._delivered)} to {self._topic}", err=True)

    def _enqueue(self, draft: Draft) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(
                    self._topic, value=draft.value, key=draft.key, on_delivery=self._done, **self._place
                )
                return
            except BufferError:
                self._serve(0.1)
            except KafkaException as error:
                raise self._explain(self._cause(error_of(error))) from None

    def _cause(self, error: KafkaError) -> KafkaError:
        """Why the producer has ended before this message: librdkafka reports that once, when it is served."""
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._FATAL:
            self._serve(CAUSE_SECONDS)
        return self._error or error

    def _done(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._delivered += 1
            return
        self._failed += 1
        self._error = self._error or error

    def _explain(self, error: KafkaError) -> CommandError:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
            return no_topic(self._topic)
        if error.code() == KafkaError._UNKNOWN_PARTITION:
            return CommandError(
                f"{self._topic} has no such partition: `forebay topic describe {self._topic}` lists them"
            )
        if error.code() == KafkaError._MSG_TIMED_OUT:
            return CommandError(f"not delivered within {self._timeout_s:g} s: is the broker still there?")
        return CommandError(f"{error.str().rstrip('.')} ({error.name()})")


class _Progress:
    """A running count on a terminal, when the input is not being typed there."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty() and not sys.stdin.isatty()
        self._next = time.monotonic() + PROGRESS_SECONDS

    def show(self, delivered: int) -> None:
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            click.echo(f"\r{delivered:,} messages", nl=False, err=True)

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)


def count(messages: int) -> str:
    return f"{messages} message" if messages == 1 else f"{messages} messages"
