"""Everything that a secure broker needs, created at its first start: `serve --secure`, `cluster start
--secure`.

In one directory: a private authority, a certificate for the brokers, the passwords of two users (the brokers'
own, and an administrator's), and the settings with which clients log in as the administrator. Existing files
are used again. Brokers get a SASL_SSL listener, SCRAM and ACLs; both users may do everything. The directory
above it, with the data, is accessible to its owner only.

The etcd of a cluster has its own authority, which signs for its servers and for the brokers: anybody who can
write there can add users, so a client's certificate must not open it. etcd accepts any certificate of its
authority. So the authority is created anew at each start, and its key is not kept: nobody can issue another
one.
"""

from __future__ import annotations

import json
import secrets
import socket
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from forebay.config import BrokerConfig
from forebay.errors import ConfigError
from forebay.local.certificates import CA_FILE, CA_KEY_FILE, Authority, write_certificate, write_secret
from forebay.local.etcd import EtcdTls
from forebay.local.stored_users import StoredUsers
from forebay.storage.datadir import META
from forebay.wire.sasl.scram import ITERATIONS_DEFAULT, ScramMechanism

ADMIN, BROKER = "admin", "broker"
PROTOCOL = "SASL_SSL"
CLIENT_FILE, JAVA_FILE = "client.properties", "client-java.properties"
_MECHANISM = ScramMechanism.SHA_512.sasl_name
_PASSWORDS = "passwords.json"
_PASSWORD_BYTES = 24
_ETCD, _ETCD_SETTINGS = "etcd", "etcd.toml"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OURS, _ON_EMPTY_DISKS = {META, "security", "etcd", CA_FILE}, {"lost+found"}
"""The possible contents of a directory of a secure start, or of a broker or a cluster before it."""
_EVERY_INTERFACE = ("", "0.0.0.0", "::")


class SecureSetup:
    protocol = PROTOCOL

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def make_files(self, hosts: Iterable[str]) -> None:
        """Create what is missing: the authority, the brokers' certificate for these hosts, the passwords."""
        make_private(self.directory.parent)
        make_private(self.directory)
        ours = [host for host in hosts if host not in _EVERY_INTERFACE]
        if not (self.directory / CA_KEY_FILE).exists():
            Authority.create().save(self.directory)
        certificate = self.directory / "broker.pem"
        if not certificate.exists():
            names = dict.fromkeys([*ours, *_LOOPBACK, socket.gethostname()])
            write_certificate(certificate, Authority.load(self.directory).issue(BROKER, names))
        if not (self.directory / _PASSWORDS).exists():
            made = {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in (ADMIN, BROKER)}
            write_secret(self.directory / _PASSWORDS, json.dumps(made).encode())

    # -- etcd ----------------------------------------------------------------------------------------

    @property
    def etcd_tls(self) -> EtcdTls:
        """The TLS files of etcd's servers."""
        place, certificate = self.directory / _ETCD, self.directory / _ETCD / "server.pem"
        return EtcdTls(ca_file=place / CA_FILE, cert_file=certificate, key_file=certificate)

    def make_etcd_files(self) -> None:
        """Certificates for etcd's servers, and for the brokers as its clients: new ones at each start."""
        place, authority = self.directory / _ETCD, Authority.create("Forebay etcd authority")
        make_private(place)
        write_secret(place / CA_FILE, authority.pem)
        write_certificate(place / "server.pem", authority.issue("etcd", _LOOPBACK))
        write_certificate(place / "client.pem", authority.issue("broker"))

    @property
    def has_etcd_files(self) -> bool:
        return self.etcd_tls.cert_file.exists()

    def etcd_settings(self, url: str) -> dict[str, str]:
        """The settings by which brokers reach etcd."""
        return {
            "forebay.cluster": url,
            "forebay.etcd.ca.file": str(self.directory / _ETCD / CA_FILE),
            "forebay.etcd.cert.file": str(self.directory / _ETCD / "client.pem"),
        }

    def write_etcd_settings(self, url: str) -> None:
        """Write the settings for commands that use etcd without a broker (`--offline --config`)."""
        lines = (
            f"{json.dumps(name)} = {json.dumps(text)}\n" for name, text in self.etcd_settings(url).items()
        )
        write_secret(self.directory / _ETCD_SETTINGS, "".join(lines).encode())

    # -- users ---------------------------------------------------------------------------------------

    def add_users(self, config: BrokerConfig) -> None:
        """Add the two users to the store that these settings name, unless they exist."""
        users = StoredUsers(config)
        known = users.credentials()
        for name, password in self._passwords().items():
            if name not in known:
                mechanisms = [each.sasl_name for each in ScramMechanism]
                users.put(name, mechanisms, password, ITERATIONS_DEFAULT)

    def settings(self) -> dict[str, str]:
        """The settings of the brokers, except their listeners."""
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
        """The settings of clients, by librdkafka's names."""
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": PROTOCOL,
            "ssl.ca.location": str(self.directory / CA_FILE),
            "sasl.mechanism": _MECHANISM,
            "sasl.username": ADMIN,
            "sasl.password": self._passwords()[ADMIN],
        }

    def write_client_files(self, bootstrap: str) -> Path:
        """Write the administrator's login for clients; returns the path of the file for librdkafka."""
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


def make_private(directory: Path) -> None:
    """Make a directory, if need be, that only its owner can enter. Raises ConfigError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = directory.stat().st_mode
    if not stat.S_IMODE(mode) & 0o077:
        return
    names = {each.name for each in directory.iterdir()}
    if mode & stat.S_ISVTX or (names - _ON_EMPTY_DISKS and not names & _OURS):
        raise ConfigError(
            f"{directory} is used for other things too: give --secure a directory of its own, or chmod 700 it"
        )
    try:
        directory.chmod(0o700)
    except PermissionError:
        raise ConfigError(
            f"others can enter {directory}, and only its owner can change that: chmod 700 it"
        ) from None


def _lines(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()
