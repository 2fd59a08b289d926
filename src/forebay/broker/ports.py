"""The ports of a broker: all that it needs of the world outside its process.

Whatever is not deterministic comes in here: time, files, connections, threads, random bytes, the store. The
simulator puts its own in their place and runs whole brokers on virtual time. So nothing else in `broker/` may
make a thread, ask the system for the time or for randomness, or open a socket; timers are the event loop's.
`system_ports.py` has the ports of the operating system.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Protocol

from forebay.lazy import dataclass

if TYPE_CHECKING:
    from forebay.clock import Clock
    from forebay.config import BrokerConfig
    from forebay.coordination.store import Store
    from forebay.storage.delays.index import DelayIndexes
    from forebay.storage.disk import Disk
    from forebay.tiers.object_store import ObjectStore
    from forebay.wire.parts import FileRange

Address = tuple[str, int]
"""Host and port."""


class Stream(Protocol):
    """The socket of a connection. All calls raise BlockingIOError instead of waiting."""

    peer: Address
    local: Address

    def recv_into(self, buffer: memoryview) -> int: ...
    def at_end(self) -> bool: ...
    def send(self, data: bytes | bytearray | memoryview) -> int: ...
    def send_and_more(self, data: bytes | bytearray | memoryview) -> int:
        """Send what will be followed by more at once: the system may wait for that."""

    def send_file(self, source: FileRange) -> int: ...
    def on_readable(self, callback: Callable[[], None] | None) -> None: ...
    def on_writable(self, callback: Callable[[], None] | None) -> None: ...
    def close(self) -> None: ...


class Listening(Protocol):
    """An address that is bound. Connections to it wait until start()."""

    @property
    def address(self) -> Address: ...

    def start(self, strangers: Accepting) -> None: ...
    def close(self) -> None: ...


class Accepting(Protocol):
    """How fast connections are accepted, which anybody can make: `StrangerWork`."""

    @property
    def piece_is_over(self) -> bool:
        """True if the others are to be accepted later."""

    def kind(self, do_some: Callable[[], bool]) -> Callable[[], None]:
        """Make of a function that accepts some connections, and tells whether there may be more, one that is
        called when there are any."""


class Network(Protocol):
    def listen(self, host: str, port: int, on_stream: Callable[[Stream], None]) -> Listening:
        """Bind an address; every connection to it is handed over as a stream. Raises OSError."""

    async def connect(self, host: str, port: int) -> Stream:
        """Raises ConnectionRefusedError if nobody listens there, and other kinds of OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    clock: Clock
    disk: Disk
    network: Network
    executor: Callable[[int, str], Executor]
    """Makes a pool for what blocks, from the greatest number of workers and a prefix for their names."""
    entropy: Callable[[int], bytes]
    """Makes this many random bytes, for ids."""
    delay_indexes: DelayIndexes
    """The indexes of messages that wait, beside the logs."""
    open_store: Callable[[BrokerConfig], Awaitable[Store]]
    open_objects: Callable[[str], ObjectStore]
    """Opens the object store of tiered storage, given its URL. Blocks. Raises ObjectStoreError."""
