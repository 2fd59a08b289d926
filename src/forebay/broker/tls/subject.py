"""The name in a certificate, as Java writes it: the most specific part first, `CN=ada,OU=people,O=us`."""

from __future__ import annotations

from cryptography import x509


def subject_of(certificate: bytes) -> str:
    """Raises ValueError for what is not a certificate (DER)."""
    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
