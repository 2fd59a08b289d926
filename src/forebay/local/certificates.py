"""A private certificate authority, and its certificates, for the TLS of a first cluster.

The keys are elliptic curves (P-256): every client knows them, and a handshake costs a fraction of one with
RSA. Files are PEM. A file with a key is readable by its owner only, from its creation on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from forebay.errors import ConfigError

CA_FILE = "ca.pem"
CA_KEY_FILE = "ca.key.pem"
DAYS = 825
AUTHORITY_DAYS = 3650
_BEFORE = timedelta(minutes=5)
"""Certificates are valid from this long before their creation, for machines whose clocks are late."""


class Authority:
    """The authority that signs certificates of brokers and clients. Its key stays where it was created."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, name: str = "Forebay private authority", *, days: float = AUTHORITY_DAYS) -> Authority:
        key, subject = _new_key(), _name(name)
        builder = (
            _builder(subject, subject, key, timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, directory: Path) -> Authority:
        """Raises ConfigError if it is not there."""
        try:
            key_pem = (directory / CA_KEY_FILE).read_bytes()
            certificate = x509.load_pem_x509_certificate((directory / CA_FILE).read_bytes())
            key = serialization.load_pem_private_key(key_pem, password=None)
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(f"{directory}: {CA_FILE} and {CA_KEY_FILE} are no authority: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{directory / CA_KEY_FILE} is not a key that this command has made")
        return cls(key, certificate)

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        write_secret(directory / CA_KEY_FILE, _key_pem(self._key))
        (directory / CA_FILE).write_bytes(self.pem)

    @property
    def pem(self) -> bytes:
        return _pem(self._certificate)

    def issue(
        self,
        name: str | None,
        hosts: Iterable[str] = (),
        *,
        unit: str | None = None,
        days: float = DAYS,
        begins_in: timedelta = timedelta(),
    ) -> bytes:
        """A certificate and its key in one text (PEM): for a server at these hosts, else for a client.

        `name` is the common name. Without one it is for etcd's gateway, which takes a name for a login.
        """
        key, hosts = _new_key(), list(hosts)
        builder = _builder(
            _name(name, unit), self._certificate.subject, key, timedelta(days=days), begins_in
        ).add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
            )
        builder = (
            builder.add_extension(_key_usage(), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        return _key_pem(key) + _pem(builder.sign(self._key, hashes.SHA256())) + self.pem


def write_certificate(path: Path, text: bytes) -> None:
    """Write a certificate with its key."""
    write_secret(path, text)


def write_secret(path: Path, text: bytes) -> None:
    """Replace the file atomically: a broker that reads it meanwhile sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    beside.replace(path)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(name: str | None, unit: str | None = None) -> x509.Name:
    parts = {NameOID.ORGANIZATIONAL_UNIT_NAME: unit, NameOID.COMMON_NAME: name}
    try:
        return x509.Name([x509.NameAttribute(oid, text) for oid, text in parts.items() if text is not None])
    except ValueError as error:
        raise ConfigError(f"{name!r} cannot be a name in a certificate: {error}") from None


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    lifetime: timedelta,
    begins_in: timedelta = timedelta(),
) -> x509.CertificateBuilder:
    begin = datetime.now(UTC) + begins_in
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _BEFORE)
        .not_valid_after(begin + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs_certificates: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(f"{host!r} is neither a host name (in ASCII) nor an address") from None


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
