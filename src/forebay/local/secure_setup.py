"""Everything that a secure broker needs, made at its first start: `serve --secure`, `cluster start --secure`.

In one directory: a private authority, a certificate for the brokers, the passwords of two users (the brokers'
own, and an administrator's), and the settings with which clients log in as the administrator. What is there
is used again. Brokers get a SASL_SSL listener, SCRAM and ACLs; both users may do everything.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from forebay.config import BrokerConfig
from forebay.errors import ConfigError
from forebay.local.certificates import CA_FILE, CA_KEY_FILE, Authority, write_certificate, write_secret
from forebay.local.stored_users import StoredUsers
from forebay.wire.sasl.scram import ITERATIONS_DEFAULT, ScramMechanism

ADMIN, BROKER = "admin", "broker"
PROTOCOL = "SASL_SSL"
CLIENT_FILE, JAVA_FILE = "client.properties", "client-java.properties"
_MECHANISM = ScramMechanism.SHA_512.sasl_name
_PASSWORDS = "passwords.json"
_PASSWORD_BYTES = 24
_EVERY_INTERFACE = ("", "0.0.0.0", "::")


class SecureSetup:
    protocol = PROTOCOL

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def make_files(self, hosts: Iterable[str]) -> None:
        """What is missing: the authority, the brokers' certificate for these hosts, the passwords."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        ours = [host for host in hosts if host not in _EVERY_INTERFACE]
        if not (self.directory / CA_KEY_FILE).exists():
            Authority.create().save(self.directory)
        certificate = self.directory / "broker.pem"
        if not certificate.exists():
            names = dict.fromkeys([*ours, "localhost", "127.0.0.1", "::1", socket.gethostname()])
            write_certificate(certificate, Authority.load(self.directory).issue(BROKER, names))
        if not (self.directory / _PASSWORDS).exists():
            made = {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in (ADMIN, BROKER)}
            write_secret(self.directory / _PASSWORDS, json.dumps(made).encode())

    def add_users(self, config: BrokerConfig) -> None:
        """Put the two users into the store that these settings name, unless they are there."""
        users = StoredUsers(config)
        known = users.credentials()
        for name, password in self._passwords().items():
            if name not in known:
                mechanisms = [each.sasl_name for each in ScramMechanism]
                users.put(name, mechanisms, password, ITERATIONS_DEFAULT)

    def settings(self) -> dict[str, str]:
        """Of the brokers, but for their listeners."""
        return {
            "ssl.keystore.location": str(self.directory / "broker.pem"),
            "ssl.truststore.location": str(self.directory / CA_FILE),
            "sasl.mechanism.inter.broker.protocol": _MECHANISM,
            "forebay.sasl.username": BROKER,
            "forebay.sasl.password": self._passwords()[BROKER],
            "authorizer.class.name": "acl",
            "super.users": f"User:{ADMIN};User:{BROKER}",
        }

    def client_settings(self, bootstrap: str) -> dict[str, str]:
        """By librdkafka's names."""
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": PROTOCOL,
            "ssl.ca.location": str(self.directory / CA_FILE),
            "sasl.mechanism": _MECHANISM,
            "sasl.username": ADMIN,
            "sasl.password": self._passwords()[ADMIN],
        }

    def write_client_files(self, bootstrap: str) -> Path:
        """The administrator's login for clients; where that for librdkafka is."""
        librdkafka = self.client_settings(bootstrap)
        login = "org.apache.kafka.common.security.scram.ScramLoginModule"
        java = {
            "bootstrap.servers": bootstrap,
            "security.protocol": PROTOCOL,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": librdkafka["ssl.ca.location"],
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{login} required username="{ADMIN}" password="{self._passwords()[ADMIN]}";',
        }
        write_secret(self.directory / JAVA_FILE, _lines(java))
        write_secret(self.directory / CLIENT_FILE, _lines(librdkafka))
        return self.directory / CLIENT_FILE

    def _passwords(self) -> dict[str, str]:
        path = self.directory / _PASSWORDS
        try:
            found = json.loads(path.read_bytes())
            return {name: str(found[name]) for name in (ADMIN, BROKER)}
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path} does not hold the passwords of {ADMIN} and {BROKER}") from None


def _lines(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()
