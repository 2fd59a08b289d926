"""Sending a message, and sending one again."""

from __future__ import annotations

import time

from forebay.console.pages.messages.message_search import message_at
from forebay.console.pages.topics.topic import seen
from forebay.console.watch.snapshot import TopicSeen
from forebay.console.web.asking import Ask, Change, WrongInput, body_text, whole_number
from forebay.console.web.page import Page
from forebay.operations.client import CommandError, failed

PAGE = Page()

_VALUE_CHARS_MAX = 16 << 20
_SEND_SECONDS = 25.0
_COMMAND_CHARS_MAX = 300
"""Of a longer value the command line shows nothing."""


@PAGE.change("/topics/{topic}/produce")
def produce(ask: Ask) -> Change:
    """The body: value, key, headers (pairs), partition; null for a message without one."""
    _, topic = seen(ask)
    value, key = _given(ask, "value"), _given(ask, "key")
    headers = _headers(ask)
    partition = _given_partition(ask, topic)
    command = ["produce", topic.name]
    command += [] if key is None else ["--key", key]
    for name, text in headers:
        command += ["--header", f"{name}={text}"]
    command += [] if partition is None else ["--partition", str(partition)]
    command += ["--null-marker", "null"] if value is None else []
    return Change(
        question=f"Send a message to {topic.name}?",
        details=[_described(key, value, len(headers))],
        done=f"sent a message to {topic.name}",
        command=command,
        stdin="null" if value is None else value if len(value) <= _COMMAND_CHARS_MAX else "...",
        act=lambda: _send(
            ask,
            topic.name,
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            [(name, text.encode()) for name, text in headers],
            partition,
        ),
    )


@PAGE.change("/topics/{topic}/messages/{partition:int}/{offset:int}/resend")
def resend(ask: Ask) -> Change:
    """The body: `target`, the topic to send the same bytes to; the same topic unless given."""
    record = message_at(ask)
    source = ask.path["topic"]
    target = body_text(ask, "target", required=False).strip() or source
    if target not in ask.cluster.snapshot().topics:
        raise WrongInput(f"there is no topic {target}", "target")
    place = f"{source}-{ask.path['partition']}@{ask.path['offset']}"
    return Change(
        question=f"Send {place} to {target} again?",
        details=["The same key, value and headers become a new message."],
        done=f"sent {place} to {target} again",
        command=[
            "consume",
            source,
            "--partition",
            str(ask.path["partition"]),
            "--from",
            str(ask.path["offset"]),
            "-n",
            "1",
        ],
        then=f"forebay produce {target}",
        act=lambda: _send(ask, target, record.key, record.value, list(record.headers), None),
    )


def _send(
    ask: Ask,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]] | list[tuple[str, bytes]],
    partition: int | None,
) -> str:
    """Send and wait for the acknowledgement; says where the message is."""
    from confluent_kafka import KafkaError, KafkaException, Message

    outcome: list[tuple[KafkaError | None, Message]] = []
    producer = ask.cluster.producer()
    try:
        producer.produce(
            topic,
            key=key,
            value=value,
            headers=list(headers),
            partition=-1 if partition is None else partition,
            on_delivery=lambda error, sent: outcome.append((error, sent)),
        )
        deadline = time.monotonic() + _SEND_SECONDS
        while not outcome and time.monotonic() < deadline:
            producer.poll(0.05)
    except KafkaException as error:
        raise failed(error) from None
    except BufferError:
        raise CommandError("too many messages are being sent: try again") from None
    if not outcome:
        raise CommandError("the broker has not acknowledged the message in time; it may still arrive")
    problem, sent = outcome[0]
    if problem is not None:
        raise failed(problem)
    return f"sent {topic}-{sent.partition()}@{sent.offset()}"


def _given(ask: Ask, name: str) -> str | None:
    value = ask.body.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise WrongInput("this must be text", name)
    if len(value) > _VALUE_CHARS_MAX:
        raise WrongInput(f"this is more than {_VALUE_CHARS_MAX >> 20} MB", name)
    return value


def _headers(ask: Ask) -> list[tuple[str, str]]:
    given = ask.body.get("headers", [])
    if not isinstance(given, list):
        raise WrongInput("headers are pairs", "headers")
    found = []
    for pair in given:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(each, str) for each in pair)):
            raise WrongInput("a header is a name and a value", "headers")
        found.append((pair[0], pair[1]))
    return found


def _given_partition(ask: Ask, topic: TopicSeen) -> int | None:
    given = ask.body.get("partition")
    if given in (None, ""):
        return None
    return whole_number(given, "partition", most=len(topic.partitions) - 1)


def _described(key: str | None, value: str | None, headers: int) -> str:
    size = "no value" if value is None else f"a value of {len(value.encode()):,} bytes"
    keyed = "no key" if key is None else f"key {key[:60]!r}"
    return f"{keyed}, {size}, {headers} header{'' if headers == 1 else 's'}"
