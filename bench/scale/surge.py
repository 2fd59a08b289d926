"""A surge, and the time after it.

Clients send messages of 1 KB at their own pace, however long answers take. Within a second there are fifty
times as many clients with fifty times as many messages; ten seconds later there are as few as before. Each
message's time counts from when it was due, so a broker that falls behind is seen to. A reader follows the end
of the topic. Measured for each half second: how many messages were due and acknowledged, how long they took,
and the broker's memory. In the end every message must be in the log, and read.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import selectors
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from bench.client import Client
from bench.frames import batch_of, fetch_frame, produce_frame
from bench.load import connect, receive_frame
from bench.report import RESULTS
from bench.scale.curve import Row
from bench.server import Address, BenchError, ForebayServer

TOPIC = "surge"
TIMES = 50
CLIENTS = 10
SIZES = (200,)
"""Messages a second before the surge."""
BEFORE_S, RAMP_S, SURGE_S, AFTER_S = 5.0, 1.0, 10.0, 14.0
BIN_S = 0.5
LEFT_S_MAX = 60.0
"""How long answers may take after the last message was due."""
PICTURE = RESULTS / "scale-surge.png"
BATCH = batch_of(1, 1000)
FETCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Seen:
    """What a half second has brought."""

    due: int
    acknowledged: int
    times_s: list[float]
    """Of the messages that were due in it, sorted."""
    rss_bytes: int

    def quantile_ms(self, part: float) -> float:
        return 1000 * self.times_s[min(int(part * len(self.times_s)), len(self.times_s) - 1)]


def clients_at(second: float) -> float:
    """How many times as many clients there are as in the beginning."""
    if second < BEFORE_S or second >= BEFORE_S + 2 * RAMP_S + SURGE_S:
        return 1.0
    into = second - BEFORE_S
    ramp = min(into / RAMP_S, (2 * RAMP_S + SURGE_S - into) / RAMP_S, 1.0)
    return 1 + ramp * (TIMES - 1)


def due_times(base_per_s: float) -> Iterator[tuple[float, int]]:
    """When each message is due, and which client sends it."""
    second, number = 0.0, 0
    while second < BEFORE_S + 2 * RAMP_S + SURGE_S + AFTER_S:
        times = clients_at(second)
        yield second, number % max(round(CLIENTS * times), 1)
        second += 1 / (base_per_s * times)
        number += 1


class _Sender:
    """One client's connection, which is made when it has its first message."""

    def __init__(self, address: Address, frame: bytes, reply_bytes: int) -> None:
        self.socket = connect(address)
        self._frame = frame
        self._reply_bytes = reply_bytes
        self.socket.setblocking(False)
        self._unsent = bytearray()
        self._received = 0
        self.waiting: deque[float] = deque()
        """When each unanswered message was due."""

    def send(self) -> bool:
        """Send one more; True if the socket is full."""
        self._unsent += self._frame
        return self.flush()

    def flush(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            del self._unsent[: self.socket.send(self._unsent)]
        return bool(self._unsent)

    def answered(self) -> int:
        data = self.socket.recv(1 << 16)
        if not data:
            raise BenchError("the broker closed a connection")
        self._received += len(data)
        count, self._received = divmod(self._received, self._reply_bytes)
        return count


def _send_all(address: Address, base_per_s: float, results: Connection) -> None:
    """In a process of its own: when each message was due and acknowledged, and how many were not."""
    frame = produce_frame(TOPIC, BATCH)
    with connect(address) as sock:
        sock.sendall(frame)
        reply_bytes = len(receive_frame(sock))
    senders: dict[int, _Sender] = {}
    taken: list[tuple[float, float]] = []
    left = 0
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()

        def serve(until: float) -> None:
            nonlocal left
            while True:
                pause_s = until - (time.perf_counter() - began)
                for key, events in selector.select(max(pause_s, 0.0)):
                    sender: _Sender = key.data
                    if events & selectors.EVENT_WRITE and not sender.flush():
                        selector.modify(sender.socket, selectors.EVENT_READ, sender)
                    if events & selectors.EVENT_READ:
                        now = time.perf_counter() - began
                        for _ in range(sender.answered()):
                            taken.append((sender.waiting.popleft(), now))
                            left -= 1
                if pause_s <= 0:
                    return

        for number, (due, client) in enumerate(due_times(base_per_s)):
            if due > time.perf_counter() - began or number % 16 == 0:
                serve(due)
            sender = senders.get(client)
            if sender is None:
                sender = senders[client] = _Sender(address, frame, reply_bytes)
                selector.register(sender.socket, selectors.EVENT_READ, sender)
            sender.waiting.append(due)
            left += 1
            if sender.send():
                selector.modify(sender.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, sender)
        end = time.perf_counter() - began + LEFT_S_MAX
        while left and time.perf_counter() - began < end:
            serve(time.perf_counter() - began + 0.05)
    results.send((taken, left))


def _read_all(address: Address, results: Connection) -> None:
    """In a process of its own: follow the end of the topic, until told how much there is."""
    sock = connect(address)
    offset, end = 0, None
    while end is None or offset < end:
        if results.poll():
            end = results.recv()
        sock.sendall(fetch_frame(TOPIC, offset, max_bytes=FETCH_BYTES, max_wait_ms=200))
        # Every batch has one message, and all have the same size.
        offset += len(receive_frame(sock)) // len(BATCH)
    results.send(offset)


def surge_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    rows = []
    for base_per_s in sizes:
        seen = _measure(scratch, base_per_s)
        rows = _phases(seen)
        _draw(PICTURE, seen)
    return rows


def _measure(scratch: Path, base_per_s: float) -> list[Seen]:
    context = multiprocessing.get_context("fork")
    with ForebayServer(scratch, "surge") as broker, Client(broker.address) as client:
        client.create_topic(TOPIC)
        broker.wait_until_loaded()
        to_sender, of_sender = context.Pipe()
        to_reader, of_reader = context.Pipe()
        sender = context.Process(target=_send_all, args=(broker.address, base_per_s, of_sender), daemon=True)
        reader = context.Process(target=_read_all, args=(broker.address, of_reader), daemon=True)
        reader.start()
        sender.start()
        memory: list[int] = []
        while not to_sender.poll(BIN_S):
            memory.append(broker.rss_bytes())
            if not sender.is_alive() and not to_sender.poll():
                raise BenchError("the clients have ended too early")
        taken, left = to_sender.recv()
        stored = client.end_offset(TOPIC)
        if left or stored != len(taken) + 1:  # the first showed how long an answer is
            raise BenchError(f"{left} messages were not answered; {stored} of {len(taken) + 1} are stored")
        to_reader.send(stored)
        if not to_reader.poll(LEFT_S_MAX) or to_reader.recv() != stored:
            raise BenchError("the reader did not get all messages")
        sender.join()
        reader.join()
    return _by_bin(taken, memory)


def _by_bin(taken: list[tuple[float, float]], memory: list[int]) -> list[Seen]:
    count = int(max(due for due, _ in taken) / BIN_S) + 1
    times: list[list[float]] = [[] for _ in range(count)]
    acknowledged = [0] * count
    for due, done in taken:
        times[int(due / BIN_S)].append(done - due)
        acknowledged[min(int(done / BIN_S), count - 1)] += 1
    return [
        Seen(len(each), acknowledged[n], sorted(each), memory[min(n, len(memory) - 1)])
        for n, each in enumerate(times)
        if each
    ]


def _phases(seen: list[Seen]) -> list[Row]:
    """Before, during and after the surge, and the first seconds after it."""
    rise, fall = BEFORE_S, BEFORE_S + 2 * RAMP_S + SURGE_S
    spans = [(0.0, rise), (rise, fall), (fall, fall + 1), (fall + 1, fall + 3), (fall + 3, fall + AFTER_S)]
    rows = []
    for begin, end in spans:
        part = seen[int(begin / BIN_S) : int(end / BIN_S)]
        times = sorted(time_s for each in part for time_s in each.times_s)
        whole = Seen(len(times), 0, times, max(each.rss_bytes for each in part))
        rows.append(
            {
                "from second": begin,
                "messages a second": len(times) / (end - begin),
                "p50 ms": whole.quantile_ms(0.5),
                "p99 ms": whole.quantile_ms(0.99),
                "longest ms": whole.quantile_ms(1.0),
                "memory MB": whole.rss_bytes / 1e6,
            }
        )
    return rows


def _draw(path: Path, seen: list[Seen]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    seconds = [BIN_S * (n + 0.5) for n in range(len(seen))]
    page, (load, wait, memory) = pyplot.subplots(3, 1, figsize=(9, 6.5), sharex=True, layout="constrained")
    load.plot(seconds, [each.due / BIN_S for each in seen], color="#8a94a0", label="due")
    load.plot(
        seconds, [each.acknowledged / BIN_S for each in seen], color="#2a7f62", ls="--", label="acknowledged"
    )
    load.set_ylabel("messages a second")
    load.legend(loc="upper right")
    for part, colour in ((0.5, "#8a94a0"), (0.99, "#2a7f62")):
        wait.plot(
            seconds, [each.quantile_ms(part) for each in seen], color=colour, label=f"p{part * 100:.0f}"
        )
    wait.set_yscale("log")
    wait.set_ylabel("ms until acknowledged")
    wait.legend(loc="upper right")
    memory.plot(seconds, [each.rss_bytes / 1e6 for each in seen], color="#2a7f62")
    memory.set_ylim(bottom=0)
    memory.set_ylabel("memory of the broker, MB")
    memory.set_xlabel("seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(path, dpi=110)
    pyplot.close(page)
