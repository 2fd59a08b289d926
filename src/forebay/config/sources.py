"""The sources of settings: a TOML file, then the environment, then the command line; the last one wins.

In TOML a key may be written flat (`log.retention.ms = 60000`), quoted, or as nested tables: all three mean
the same. In the environment it is `FOREBAY_LOG_RETENTION_MS`; Forebay's own keys lose their second prefix
there: `forebay.flush.policy` is `FOREBAY_FLUSH_POLICY`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay.config.broker import BrokerConfig, broker_config, canonical
from forebay.config.keys.broker import ALIASES, BROKER_KEYS
from forebay.config.per_listener import PER_LISTENER_KEYS, PREFIX
from forebay.errors import ConfigError

_ENV_PREFIX = "FOREBAY_"

# Not settings of a broker: what our own commands connect to, and where they keep things; what Kubernetes puts
# into every container of a namespace with a service called "forebay", or "forebay-etcd"; what `forebay work`
# tells a command about its message.
_ENV_OTHERS = re.compile(
    r"FOREBAY_(BOOTSTRAP_SERVERS|CLIENT_CONFIG|CONSOLE_TOKEN|CACHE_DIR|STATE_DIR"
    r"|(ETCD_)?(SERVICE_(HOST|PORT).*|PORT|PORT_\d+_.*)"
    r"|TOPIC|PARTITION|OFFSET|TIMESTAMP_MS|GROUP|DELIVERY_COUNT|KEY(_BASE64)?|NULL_VALUE|HEADERS|HEADER_.*)"
)


def load(file: Path | None, environ: Mapping[str, str], overrides: Sequence[str]) -> BrokerConfig:
    """The broker's config from all sources; raises ConfigError that says what to write instead."""
    settings = canonical(_read_toml(file)) if file is not None else {}
    settings.update(canonical(_from_environ(environ)))
    settings.update(canonical(_from_overrides(overrides)))
    return broker_config(settings)


def env_name(key: str) -> str:
    return _ENV_PREFIX + key.removeprefix("forebay.").upper().replace(".", "_")


def _read_toml(file: Path) -> dict[str, str]:
    import tomllib

    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        hint = '; where one key continues another, quote both: "max.connections" = 100'
        raise ConfigError(f"{file}: {error}{hint if 'overwrite' in str(error) else ''}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text") from None
    settings: dict[str, str] = {}
    for name, value in _flatten("", tables):
        if name in settings:
            raise ConfigError(f"{file}: {name} is given twice")
        settings[name] = _toml_text(name, value)
    return settings


def _flatten(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _toml_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, str)):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise ConfigError(f"{name}: write a number, a text, true, false or a list of texts")


def _from_environ(environ: Mapping[str, str]) -> dict[str, str]:
    names = {env_name(key): key for key in (*BROKER_KEYS, *ALIASES)}
    settings: dict[str, str] = {}
    for variable, text in environ.items():
        if not variable.startswith(_ENV_PREFIX) or _ENV_OTHERS.fullmatch(variable):
            continue
        key = names.get(variable) or _listener_key(variable)
        if key is None:
            raise ConfigError(
                f"environment variable {variable} is no setting{_nearest_variable(variable, names)}"
            )
        settings[key] = text
    return settings


def _listener_key(variable: str) -> str | None:
    """FOREBAY_LISTENER_NAME_EXTERNAL_SSL_CLIENT_AUTH is listener.name.external.ssl.client.auth."""
    prefix = env_name(PREFIX)
    for key in PER_LISTENER_KEYS:
        ending = "_" + key.upper().replace(".", "_")
        if variable.startswith(prefix) and variable.endswith(ending):
            listener = variable.removeprefix(prefix).removesuffix(ending)
            if listener:
                return f"{PREFIX}{listener.lower()}.{key}"
    return None


def _nearest_variable(variable: str, names: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(variable, names, n=1)
    return f"; did you mean {found[0]} ({names[found[0]]})?" if found else "; see docs/configuration.md"


def _from_overrides(overrides: Sequence[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for item in overrides:
        name, separator, text = item.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"{item!r} is not a setting, write key=value")
        settings[name.strip()] = text
    return settings
