"""Writes docs/configuration.md from the definitions in the code, so that the page cannot lie.

`--check` writes nothing and fails when the page is out of date; a test runs the same comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import inf
from pathlib import Path

from forebay.config.group_settings import GROUP_RESOURCE_KEYS, bound_names
from forebay.config.keys.broker import ALIASES, BROKER_KEYS
from forebay.config.keys.security.tls import CHANGED_WHILE_RUNNING
from forebay.config.keys.topic import TOPIC_KEYS
from forebay.config.values import INT_MAX, LONG_MAX, ConfigType, Definition, format_value

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

_INTRODUCTION = """\
# Configuration

This page is written by `make docs` from the definitions in `src/forebay/config/`; a test keeps it current.

Names and meanings are Kafka's; what is Forebay's own begins with `forebay.`. A setting comes from, later ones
winning:

1. a TOML file: `forebay serve --config forebay.toml`, written flat (`log.retention.ms = 60000`), quoted or
   as tables;
2. the environment: `log.retention.ms` is `FOREBAY_LOG_RETENTION_MS`, `forebay.flush.policy` is
   `FOREBAY_FLUSH_POLICY`;
3. the command line: `forebay serve --set log.retention.ms=60000`; `--data` and `--listen` set `log.dirs` and
   `listeners`.

An unknown key or a value out of range stops the broker before it starts, with the nearest valid name.
`forebay config get broker 1` shows what a running broker uses, and from which source.
"""
_TOPIC_INTRODUCTION = """\
## Topic settings

Given with `forebay topic create NAME --config KEY=VALUE`, changed with
`forebay config set topic NAME KEY=VALUE` or any admin client. A topic without a value of its own takes the
broker's, from the setting in the last column.
"""


_GROUP_INTRODUCTION = """\
## Group settings

Changed with `forebay config set group NAME KEY=VALUE` or any admin client (resource type GROUP). Those that
begin with `consumer.` are for groups of the consumer protocol, the others for share groups. They count from
each member's next heartbeat on.
"""
_IGNORED_INTRODUCTION = """\
## Settings without effect

These settings of Kafka have no meaning here. They are accepted and kept, so that scripts and tools made for
Kafka work, and DescribeConfigs says in their documentation that they have no effect.

A running broker also keeps settings that nobody knows, as Kafka does for its plugins, and logs a warning.
Their values are not shown. A broker does not start with them.
"""


def render() -> str:
    broker = _table(
        ("Setting", "Type", "Default", "Allowed", "At run time", "Meaning"),
        (_broker_row(definition) for definition in BROKER_KEYS.values() if not definition.ignored),
    )
    topic = _table(
        ("Setting", "Type", "Allowed", "Meaning", "Falls back to"),
        (
            (
                f"`{name}`",
                _type(key.definition),
                _allowed(key.definition),
                key.definition.doc,
                ", ".join(f"`{fallback}`" for fallback, _ in key.fallbacks),
            )
            for name, key in sorted(TOPIC_KEYS.items())
            if not key.definition.ignored
        ),
    )
    others = "".join(
        f"- `{alias}` is another name for `{name}`.\n" for alias, name in sorted(ALIASES.items())
    )
    return "\n".join(
        (
            _INTRODUCTION,
            f"## Broker settings\n\n{broker}",
            others,
            _TOPIC_INTRODUCTION,
            topic,
            _GROUP_INTRODUCTION,
            _group_table(),
            _IGNORED_INTRODUCTION,
            _ignored_table(),
        )
    )


def _group_table() -> str:
    return _table(
        ("Setting", "Type", "Meaning", "Bounds", "Falls back to"),
        (
            (
                f"`{name}`",
                _type(key.definition),
                key.definition.doc,
                _group_bounds(key.definition),
                f"`{key.fallback}`" if key.fallback else _default(key.definition),
            )
            for name, key in GROUP_RESOURCE_KEYS.items()
            if not key.definition.ignored
        ),
    )


def _group_bounds(definition: Definition) -> str:
    names = bound_names(definition.name)
    return _allowed(definition) if names is None else ", ".join(f"`{name}`" for name in names)


def _default(definition: Definition) -> str:
    text = format_value(definition.default)
    return f"default `{_number(text)}`" if text else "none"


def _ignored_table() -> str:
    kinds = (
        ("broker", BROKER_KEYS.values()),
        ("topic", [key.definition for key in TOPIC_KEYS.values()]),
        ("group", [key.definition for key in GROUP_RESOURCE_KEYS.values()]),
    )
    return _table(
        ("Setting", "Of", "Type", "Allowed", "Why"),
        (
            (f"`{definition.name}`", kind, _type(definition), _allowed(definition), definition.doc)
            for kind, definitions in kinds
            for definition in definitions
            if definition.ignored
        ),
    )


def _broker_row(definition: Definition) -> tuple[str, ...]:
    default = format_value(definition.default)
    return (
        f"`{definition.name}`",
        _type(definition),
        f"`{_number(default)}`" if default else "none",
        _allowed(definition),
        _at_run_time(definition),
        definition.doc,
    )


def _at_run_time(definition: Definition) -> str:
    if definition.name in CHANGED_WHILE_RUNNING:
        return "for one listener"
    return "yes" if definition.dynamic else "no"


def _type(definition: Definition) -> str:
    return ConfigType(definition.type).name.lower()


def _allowed(definition: Definition) -> str:
    if definition.type in (ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE) and not definition.choices:
        low, high = definition.bounds
        return f"{low} to {_number(str(high))}" if high not in (INT_MAX, LONG_MAX, inf) else f"from {low}"
    return definition.allowed or "text"


def _number(text: str) -> str:
    """The two limits of the protocol's integers, by the names that people know."""
    return {str(INT_MAX): "2^31-1", str(LONG_MAX): "2^63-1"}.get(text, text)


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def main() -> int:
    page = render()
    if "--check" in sys.argv[1:]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page
        print(
            "docs/configuration.md is current"
            if current
            else "docs/configuration.md is out of date: make docs"
        )
        return 0 if current else 1
    PAGE.write_text(page, encoding="utf-8")
    print(f"wrote {PAGE.name}: {len(BROKER_KEYS)} broker settings, {len(TOPIC_KEYS)} topic settings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
