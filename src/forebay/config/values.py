"""The values of settings: their types, their bounds, and their text form.

Every source (file, environment, command line, admin client, store) speaks text, so there is one parser,
`Definition.parse`, and one formatter, `format_value`. The type numbers are those of DescribeConfigs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from enum import IntEnum
from functools import partial
from math import inf, isfinite
from typing import Any

from forebay.errors import ConfigError
from forebay.lazy import dataclass


class Secret(str):
    """Text that is never shown: neither by `repr` nor when formatted."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"

    def __str__(self) -> str:
        return "[hidden]"

    def __format__(self, spec: str) -> str:
        return format("[hidden]", spec)

    def reveal(self) -> str:
        return self[:]


Value = int | float | bool | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9
    """Text that is never shown."""


class Source(IntEnum):
    """The source of a value; the numbers are the protocol's."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class Definition:
    type: ConfigType
    name: str
    default: Value
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    _: KW_ONLY
    choices: tuple[str, ...] = ()
    validate: Callable[[Value], None] | None = None
    """An extra check; raises ValueError that says what to write instead."""
    dynamic: bool = False
    """True if a running broker accepts a new value."""
    ignored: bool = False
    """A setting of Kafka without effect here. It is kept, so that scripts made for Kafka work."""

    def parse(self, text: str) -> Value:
        try:
            value = _PARSERS[self.type](text.strip())
            self._check(value)
        except ValueError as error:
            # Kafka's beginning of the sentence: scripts search for it.
            shown = "[hidden]" if self.type is ConfigType.PASSWORD else text
            raise ConfigError(f"Invalid value {shown} for configuration {self.name}: {error}") from None
        return value

    @property
    def documentation(self) -> str:
        """The text that DescribeConfigs shows."""
        return f"Kept, but without effect in Forebay: {self.doc}" if self.ignored else self.doc

    def _check(self, value: Value) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = self.bounds
            if not low <= value <= high:
                raise ValueError(f"out of range, use {self.allowed}")
        if self.choices:
            for part in value if isinstance(value, tuple) else (value,):
                if part not in self.choices:
                    raise ValueError(f"{part!r} is not allowed, use {self.allowed}")
        if self.validate is not None:
            self.validate(value)

    @property
    def bounds(self) -> tuple[float, float]:
        least, most = _LIMITS[self.type]
        return (
            least if self.minimum is None else self.minimum,
            most if self.maximum is None else self.maximum,
        )

    @property
    def allowed(self) -> str:
        """The allowed values as people read them; empty for free text."""
        if self.choices:
            joiner = "any of" if self.type is ConfigType.LIST else "one of"
            return f"{joiner} {', '.join(self.choices)}"
        if self.type is ConfigType.BOOLEAN:
            return "true or false"
        if self.type in _LIMITS:
            low, high = self.bounds
            return f"{low} to {high}"
        return ""


def format_value(value: Value) -> str | None:
    """The text that `Definition.parse` reads back."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < LONG_MAX:
        return str(int(value))
    return str(value)


def _parse_int(text: str) -> int:
    try:
        # Python also reads 1_000 and non-ASCII digits; a config that Kafka would refuse is refused.
        if not text.isascii() or "_" in text:
            raise ValueError
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _parse_float(text: str) -> float:
    try:
        if not text.isascii() or "_" in text:
            raise ValueError
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def _parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{text!r} is not true or false")
    return lowered == "true"


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_LIMITS: dict[ConfigType, tuple[float, float]] = {
    ConfigType.INT: (-INT_MAX - 1, INT_MAX),
    ConfigType.LONG: (-LONG_MAX - 1, LONG_MAX),
    ConfigType.DOUBLE: (-inf, inf),
}
"""The range of a number if its definition gives none."""

_PARSERS: dict[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _parse_bool,
    ConfigType.STRING: str,
    ConfigType.INT: _parse_int,
    ConfigType.LONG: _parse_int,
    ConfigType.DOUBLE: _parse_float,
    ConfigType.LIST: _parse_list,
    ConfigType.PASSWORD: Secret,
}


int_key: Callable[..., Any] = partial(Definition, ConfigType.INT)
long_key: Callable[..., Any] = partial(Definition, ConfigType.LONG)
double_key: Callable[..., Any] = partial(Definition, ConfigType.DOUBLE)
bool_key: Callable[..., Any] = partial(Definition, ConfigType.BOOLEAN)
text_key: Callable[..., Any] = partial(Definition, ConfigType.STRING)
password_key: Callable[..., Any] = partial(Definition, ConfigType.PASSWORD)
list_key: Callable[..., Any] = partial(Definition, ConfigType.LIST)
"""They say Any because a definition stands for its value in a `settings_group`."""
