"""Access to a broker: connecting, and error messages in one place.

librdkafka retries silently and logs to stderr. A person wants an answer, so this first tries to connect
itself: if nobody listens it says so within seconds, with what to do next.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.errors import ForebayError
from forebay.lazy import dataclass

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer
    from confluent_kafka.admin import AdminClient, ClusterMetadata

CONNECT_SECONDS = 2.0
METADATA_SECONDS = 5.0
REQUEST_SECONDS = 10.0

T = TypeVar("T")


class CommandError(ForebayError):
    """A failure of a command, and what the user can do about it."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NoAnswer(CommandError):
    """The library has waited in vain. `Client.refused` may know why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The address of the broker, and the settings of the connection."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """librdkafka's own properties, from a file and from -X; they win over ours."""
    refused: list[KafkaError] = field(default_factory=list, init=False, compare=False)
    """The first failed login or TLS handshake. librdkafka reports it and tries on, until a timeout."""
    _handles: list[Any] = field(default_factory=list, init=False, compare=False)

    def __repr__(self) -> str:
        return f"Client({self.bootstrap})"  # properties have passwords

    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return self._connected(AdminClient, {})

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        from confluent_kafka import Producer

        return self._connected(Producer, settings)

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        from confluent_kafka import Consumer

        return self._connected(Consumer, settings)

    def share_consumer(self, settings: Mapping[str, Any]) -> ShareConsumer:
        from confluent_kafka import ShareConsumer

        return self._connected(ShareConsumer, settings)

    def _connected(self, kind: Callable[[dict[str, Any]], T], settings: Mapping[str, Any]) -> T:
        from confluent_kafka import KafkaException

        self.knock()
        quiet = {"log_level": 0, "error_cb": self._note, "log.connection.close": False}
        common = {"bootstrap.servers": self.bootstrap, "client.id": "forebay-cli", **quiet}
        try:
            handle = kind({**common, **settings, **self.properties})
        except KafkaException as error:
            raise self._missing_file() or failed(error) from None
        self._handles.append(handle)
        return handle

    def _missing_file(self) -> CommandError | None:
        """Names a file of TLS that is not there: the library says only that it cannot be read."""
        for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"):
            path = self.properties.get(name, "")
            if path and path != "probe" and not Path(path).exists():
                return CommandError(f"{name}: there is no file {path}")
        return None

    def knock(self) -> None:
        """Succeeds as soon as one of the addresses accepts a connection."""
        problems = []
        for address in self.bootstrap.split(","):
            host, port = split_address(address.strip())
            try:
                socket.create_connection((host, port), CONNECT_SECONDS).close()
                return
            except OSError as error:
                problems.append(error.strerror or str(error))
            except UnicodeError:  # an empty label, or one of more than 63 characters
                problems.append(f"{host!r} is no name of a host")
        raise CommandError(
            f"no broker answers at {self.bootstrap} ({problems[-1].lower()}): "
            f"start one with `forebay serve`, or name another with -b HOST:PORT"
        )

    def metadata(self, handle: AdminClient | Consumer | Producer) -> ClusterMetadata:
        """All brokers and topics. Asking for one topic by name could create it, so this asks for all."""
        from confluent_kafka import KafkaException

        try:
            return handle.list_topics(timeout=METADATA_SECONDS)
        except KafkaException as error:
            if error_of(error).code() in _no_answer_codes():
                raise self.refusal() or NoAnswer(
                    f"something listens at {self.bootstrap} but does not answer as a Kafka broker: "
                    f"check the address, and -X security.protocol if it wants TLS or SASL"
                ) from None
            raise failed(error) from None

    def _note(self, error: KafkaError) -> None:
        """librdkafka reports each lost connection here, too, although it goes on by itself."""
        if not self.refused and error.code() in (error._AUTHENTICATION, error._SSL):
            self.refused.append(error)

    def refusal(self) -> CommandError | None:
        """The error of a failed login or handshake, for people; None if there was none."""
        for handle in self._handles:
            with suppress(RuntimeError):  # it was closed
                handle.poll(0)  # calls `_note`
        if not self.refused:
            return None
        error = self.refused[0]
        if error.code() == error._AUTHENTICATION:
            return CommandError(
                f"the broker at {self.bootstrap} refuses the login ({_reason(error)}): "
                f"check sasl.username, sasl.password and sasl.mechanism"
            )
        return CommandError(
            f"TLS with the broker at {self.bootstrap} fails ({_reason(error)}): name the authority of its "
            f"certificate with ssl.ca.location, and your own with ssl.certificate.location if it wants one"
        )

    def partitions(self, handle: AdminClient | Consumer | Producer, topic: str) -> list[int]:
        """The partition numbers of a topic that must exist."""
        known = self.metadata(handle).topics
        if topic not in known:
            raise no_topic(topic)
        return sorted(known[topic].partitions)


def settle(future: Future[T]) -> T:
    """The result of an admin request; otherwise an error of one line that says why."""
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout=REQUEST_SECONDS * 2)
    except KafkaException as error:
        raise failed(error) from None
    except TimeoutError:
        raise NoAnswer("the broker did not answer in time: try again, or look at its log") from None


def error_of(exception: KafkaException) -> KafkaError:
    error: KafkaError = exception.args[0]
    return error


def failed(exception: KafkaException | KafkaError) -> CommandError:
    error = error_of(exception) if isinstance(exception, Exception) else exception
    kind = NoAnswer if error.code() in _no_answer_codes() else CommandError
    return kind(f"{error.str().rstrip('.')} ({error.name()})")


def no_topic(name: str) -> CommandError:
    return CommandError(
        f"there is no topic {name}: `forebay topic list` shows what there is, "
        f"`forebay topic create {name}` makes it"
    )


def _reason(error: KafkaError) -> str:
    """The error without the address in front, the advice of the library, and how long it took."""
    text = re.sub(r"^\w+://\S+: | \(after \d+ms.*", "", error.str())
    return re.sub(
        r"^SSL handshake failed: (error:\w+:)?|: broker certificate could not be verified.*", "", text
    ).strip()


def _no_answer_codes() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


def join_address(host: str, port: int) -> str:
    """The counterpart of `split_address`, with brackets where an IPv6 address needs them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host:
        host, port = address, "9092"
    if not port.isdigit() or int(port) > 65535:
        raise CommandError(f"{address!r} is not HOST:PORT", exit_code=2)
    return host.strip("[]"), int(port)
