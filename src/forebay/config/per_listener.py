"""Settings for one listener: `listener.name.<its name in lower case>.<setting>` wins over `<setting>`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forebay.config.declared_settings import definitions_of
from forebay.config.keys.security.sasl import LISTENER_KEYS
from forebay.config.keys.security.tls import TlsConfig
from forebay.errors import ConfigError

PREFIX = "listener.name."
PER_LISTENER_KEYS = (*LISTENER_KEYS, *(each.name for each in definitions_of(TlsConfig)))
"""The settings that can be set for one listener."""


class ListenerValues(Mapping[str, Any]):
    """The values of all settings for one listener."""

    def __init__(self, listener: str, values: Mapping[str, Any]) -> None:
        self._prefix = f"{PREFIX}{listener.lower()}."
        self._values = values

    def __getitem__(self, name: str) -> Any:
        own = self._prefix + name
        return self._values[own] if own in self._values else self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def listener_of(name: str) -> str:
    """The listener, in lower case, of a setting whose name begins with the prefix."""
    return name.removeprefix(PREFIX).partition(".")[0]


def check_listeners_exist(names: Iterable[str], listeners: Iterable[str]) -> None:
    """Raises ConfigError for a setting of a listener that does not exist."""
    known = {listener.lower() for listener in listeners}
    for name in names:
        if name.startswith(PREFIX) and listener_of(name) not in known:
            raise ConfigError(f"{name}: there is no such listener, only {', '.join(sorted(known))}")
