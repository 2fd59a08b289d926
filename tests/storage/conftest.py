"""Temporary directories on a disk: elsewhere they may be in memory, where nothing is cold or unsynced."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DISK = Path("/var/tmp")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="forebay-", dir=DISK if DISK.is_dir() else None) as folder:
        yield Path(folder)
