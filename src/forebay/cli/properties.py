"""Files of client properties, as for Kafka's tools and librdkafka's: `key=value` on each line.

Files made for Java's tools work too: their names are translated to librdkafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from forebay.errors import ConfigError
from forebay.transport.security import jaas_login

_RENAMED = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_HOST_CHECK = "ssl.endpoint.identification.algorithm"


def read_properties(file: Path) -> dict[str, str]:
    """The properties by librdkafka's names; raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text") from None
    return _for_librdkafka(_parsed(file, text), file)


def _parsed(file: Path, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.replace("\\\n", "").splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        key, equals, value = stripped.partition("=")
        if not equals or not key.strip():
            # Without the line itself: it may contain a part of a password.
            raise ConfigError(f"{file}, line {number}: write key=value")
        found[key.strip()] = value.strip()
    return found


def _for_librdkafka(given: Mapping[str, str], file: Path) -> dict[str, str]:
    properties = {_RENAMED.get(name, name): value for name, value in given.items()}
    properties = {**jaas_login(properties.pop("sasl.jaas.config", "")), **properties}
    for name in _STORE_TYPES:
        if properties.pop(name, "PEM").upper() != "PEM":
            raise ConfigError(f"{file}: {name} must be PEM: the stores of Java cannot be read here")
    keystore = properties.pop("ssl.keystore.location", None)
    if keystore is not None:  # one file with the certificate and its key
        properties |= {"ssl.certificate.location": keystore, "ssl.key.location": keystore}
    if properties.get(_HOST_CHECK) == "":
        properties[_HOST_CHECK] = "none"
    return properties
