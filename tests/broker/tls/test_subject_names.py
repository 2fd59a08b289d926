"""Names in certificates, as Java's X500Principal.getName() writes them: the names here are its answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName
from cryptography.x509.oid import NameOID

from forebay.broker.tls.subject import subject_of


def name(**parts: str) -> Name:
    return Name([NameAttribute(getattr(NameOID, kind), text) for kind, text in parts.items()])


NAMES = [
    (
        name(COUNTRY_NAME="DE", STATE_OR_PROVINCE_NAME="S t", LOCALITY_NAME="l", ORGANIZATION_NAME="o"),
        "O=o,L=l,ST=S t,C=DE",
    ),
    (
        name(ORGANIZATIONAL_UNIT_NAME="ou", COMMON_NAME="cn", USER_ID="u", DOMAIN_COMPONENT="example"),
        "DC=example,UID=u,CN=cn,OU=ou",
    ),
    (name(COMMON_NAME='a=b#c,d+e<f>g;h"i\\j'), 'CN=a\\=b\\#c\\,d\\+e\\<f\\>g\\;h\\"i\\\\j'),
    (name(COMMON_NAME="  x  y   "), "CN=\\ \\ x  y\\ \\ \\ "),
    (name(COMMON_NAME="   "), "CN=\\ \\ \\ "),
    (name(COMMON_NAME="n\0l"), "CN=n\\00l"),
    (name(COMMON_NAME="zoë 漢"), "CN=zoë 漢"),
    (
        name(EMAIL_ADDRESS="ada@example.org", COMMON_NAME="ada"),
        "CN=ada,1.2.840.113549.1.9.1=#160f616461406578616d706c652e6f7267",
    ),
    (name(SERIAL_NUMBER="42", GIVEN_NAME="g" * 130), f"2.5.4.42=#0c8182{'67' * 130},2.5.4.5=#13023432"),
    (
        Name(
            [
                RelativeDistinguishedName(
                    [NameAttribute(NameOID.COMMON_NAME, "ada"), NameAttribute(NameOID.USER_ID, "7")]
                ),
                RelativeDistinguishedName([NameAttribute(NameOID.ORGANIZATION_NAME, "us")]),
            ]
        ),
        "O=us,CN=ada+UID=7",
    ),
    (Name([NameAttribute(x509.ObjectIdentifier("2.999.3"), "x")]), "2.999.3=#0c0178"),
    (Name([]), ""),
]


@pytest.mark.parametrize(("subject", "written"), NAMES, ids=[written[:20] for _, written in NAMES])
def test_names_are_written_as_java_writes_them(subject: Name, written: str) -> None:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(name(COMMON_NAME="authority"))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    assert subject_of(certificate.public_bytes(serialization.Encoding.DER)) == written


def test_what_is_no_certificate_is_an_error() -> None:
    with pytest.raises(ValueError, match="parsing"):
        subject_of(b"no certificate")
