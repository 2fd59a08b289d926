"""A broker as it is registered in the store: its identity and its addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forebay.lazy import dataclass

_ONLY_LISTENER = "PLAINTEXT"
FIRST_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    id: int
    host: str
    port: int
    rack: str | None = None
    directory: str = ""
    """The id of its data directory: a node that comes back with another id has lost its data."""
    epoch: int = 0
    """The create revision of the broker's key: a broker that comes back has a larger one."""
    listeners: tuple[tuple[str, str, int], ...] = ()
    """Name, host and port of each listener. Older brokers had one, PLAINTEXT, at `host` and `port`; today
    that is the listener for other brokers."""

    process: str = ""
    """Random text that identifies a process: an earlier one, or a copy, may have the same directory."""
    store_format: int = FIRST_FORMAT
    """The highest format of the store that the broker reads (`store_format.py`)."""

    def address_of(self, listener: str) -> tuple[str, int] | None:
        """The address for clients of a listener; None if the broker does not have it."""
        for name, host, port in self.listeners:
            if name == listener:
                return host, port
        return (self.host, self.port) if not self.listeners and listener == _ONLY_LISTENER else None


def addresses_by(
    listener: str, brokers: Mapping[int, BrokerRegistration], nodes: Iterable[int]
) -> list[tuple[int, str, int, str | None]]:
    """Id, host, port and rack of the `nodes` that clients of this listener can reach."""
    known = (brokers[node] for node in sorted(nodes) if node in brokers)
    return [
        (each.id, *address, each.rack) for each in known if (address := each.address_of(listener)) is not None
    ]
