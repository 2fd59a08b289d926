"""Clients that are to be served during a siege, and how long they wait.

A producer sends a message every few milliseconds, whatever became of those before: so a broker that stands
still shows as many long waits as there were messages meanwhile. A consumer reads all of them, another one
reads them from a view. A newcomer connects and logs in again and again, as a client does that starts.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, Producer

from forebay.errors import ForebayError
from support.brokers.sasl_broker import log_in
from support.clients.wire_client import WireClient
from support.siege.target import GOOD, ORDERS, PASSWORDS, SHOWN_ORDERS, Target
from support.waiting import Patience

SEND_EVERY_S = 0.01
_POLL_S = 0.05
_REST_S = 0.1
_MESSAGES_BEFORE = 50
_MESSAGES_BEHIND_MAX = 20
_NEWCOMER = "127.0.0.2"
_NEWCOMER_S_MAX = 20.0


class GoodClients:
    """`begin` a phase, then `waits()` of it; `finish` when all that was sent has come through."""

    def __init__(self, client_settings: dict[str, str], target: Target) -> None:
        self._target = target
        self._tls = ssl.create_default_context(cafile=target.ca_file)
        fast = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}
        self._producer = Producer(
            {**client_settings, **fast, "acks": "all", "linger.ms": 0, "delivery.timeout.ms": 120_000}
        )
        self.sent = 0
        self.errors: list[str] = []
        self.refused_logins = 0
        self._acked: set[int] = set()
        self.produce_s: list[float] = []
        self.login_s: list[float] = []
        self.late_s: list[float] = []
        """How late a timer of this process fired: what the machine itself adds to each wait, and more than
        once where several processes take part in it."""
        self._sent_at: list[float] = []
        self._stop_sending = threading.Event()
        self._stop_reading = threading.Event()
        self.readers = [
            _Reader({**client_settings, **fast}, topic, self._sent_at, self._stop_reading)
            for topic in (ORDERS, SHOWN_ORDERS)
        ]
        works = (self._send, self._come_in, self._tick, *(reader.read for reader in self.readers))
        self._threads = [threading.Thread(target=work, name="siege-client", daemon=True) for work in works]

    def __enter__(self) -> GoodClients:
        for thread in self._threads:
            thread.start()
        patience = Patience("good clients are served before the siege")
        while not self.login_s or any(self._is_behind(reader) for reader in self.readers):
            patience.check(self._state())
            time.sleep(_POLL_S)
        return self

    def _is_behind(self, reader: _Reader) -> bool:
        return len(reader.received) < max(_MESSAGES_BEFORE, self.sent - _MESSAGES_BEHIND_MAX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_sending.set()
        self._stop_reading.set()
        for thread in self._threads:
            thread.join()

    def forget(self) -> None:
        """What was measured by now."""
        for found in (
            self.produce_s,
            self.login_s,
            self.late_s,
            *(reader.waits_s for reader in self.readers),
        ):
            found.clear()

    def finish(self) -> None:
        """Send no more; wait until everything was acknowledged and read."""
        self._stop_sending.set()
        patience = Patience("everything that good clients sent has come through")
        for came_through in (self._acked, *(reader.received for reader in self.readers)):
            while len(came_through) < self.sent:
                patience.check(self._state())
                time.sleep(_POLL_S)

    def _state(self) -> str:
        read = [(len(reader.received), reader.errors[-3:]) for reader in self.readers]
        return f"{self.sent} sent, {len(self._acked)} acknowledged {self.errors[-3:]}, read: {read}"

    # -- threads -----------------------------------------------------------------------------------------

    def _send(self) -> None:
        due = time.perf_counter()
        while not self._stop_sending.is_set():
            number = self.sent
            self._sent_at.append(time.perf_counter())
            self.sent += 1
            self._producer.produce(ORDERS, b"%d" % number, partition=number % 3, on_delivery=self._delivered)
            due += SEND_EVERY_S
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)
        while self._producer.flush(1) and not self._stop_reading.is_set():
            pass

    def _delivered(self, error: Any, message: Any) -> None:
        number = int(message.value())
        if error is not None:
            self.errors.append(str(error))
            return
        self._acked.add(number)
        self.produce_s.append(time.perf_counter() - self._sent_at[number])

    def _tick(self) -> None:
        while not self._stop_sending.is_set():
            due = time.perf_counter() + SEND_EVERY_S
            time.sleep(SEND_EVERY_S)
            self.late_s.append(time.perf_counter() - due)

    def _come_in(self) -> None:
        """How long it takes to be served on a new connection, with all attempts that it takes."""
        began, number = time.perf_counter(), 0
        while not self._stop_sending.is_set():
            number += 1
            if self._comes_in(number):
                self.login_s.append(time.perf_counter() - began)
                self._stop_sending.wait(_REST_S)
                began = time.perf_counter()
            else:
                self.refused_logins += 1
                self._stop_sending.wait(_REST_S)
        if number and time.perf_counter() - began > 1.0:
            self.login_s.append(time.perf_counter() - began)

    def _comes_in(self, number: int) -> bool:
        door = "{}:{}".format(*self._target.tls_door(number))
        try:
            with WireClient(door, tls=self._tls, source=_NEWCOMER, timeout_s=_NEWCOMER_S_MAX) as client:
                return bool(log_in(client, user=GOOD, password=PASSWORDS[GOOD]).error_code == 0)
        except (OSError, ForebayError):
            return False


class _Reader:
    """Reads a topic, or a view of it, from its beginning."""

    def __init__(
        self,
        client_settings: dict[str, Any],
        topic: str,
        sent_at: Sequence[float],
        stop: threading.Event,
    ) -> None:
        self._consumer = Consumer(
            {
                **client_settings,
                "group.id": f"{GOOD}-{topic}",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )
        self._topic, self._sent_at, self._stop = topic, sent_at, stop
        self.received: set[int] = set()
        self.waits_s: list[float] = []
        """From sending to reading."""
        self.errors: list[str] = []

    def read(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._stop.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
                continue
            number = int(message.value() or b"")
            if number not in self.received:
                self.received.add(number)
                self.waits_s.append(time.perf_counter() - self._sent_at[number])
        self._consumer.close()
