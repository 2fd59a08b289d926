"""Certificates for a test, made by the openssl command: an authority, and who it vouches for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


class Authority:
    def __init__(self, directory: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the openssl command is not here: it makes the certificates of this test")
        self._directory = directory
        self._name = name
        self.ca_file = directory / f"{name}.pem"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key(name), "-out", str(self.ca_file),
        )  # fmt: skip

    def issue(self, name: str, *, common_name: bool = True) -> tuple[Path, Path]:
        """A certificate and its key, for 127.0.0.1, to be a server or a client with."""
        subject = f"/CN={name}" if common_name else f"/O={name}"
        request, certificate = self._directory / f"{name}.csr", self._directory / f"{name}.pem"
        extensions = self._directory / f"{name}.ext"
        extensions.write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", subject, "-keyout", self._key(name), "-out", str(request),
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-days", "2", "-in", str(request), "-CA", str(self.ca_file),
            "-CAkey", self._key(self._name), "-CAcreateserial", "-extfile", str(extensions),
            "-out", str(certificate),
        )  # fmt: skip
        return certificate, Path(self._key(name))

    def _key(self, name: str) -> str:
        return str(self._directory / f"{name}.key")


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
