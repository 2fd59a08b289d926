"""Virtual environments with other versions of PySpark, kept in `target` beside this file.

Each has PySpark alone; everything else is found behind it, in the environment that the tests run in.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

TARGET = Path(__file__).parent / "target"
INSTALL_SECONDS_MAX = 1800


class NotInstallable(Exception):
    """The index has no such version, or cannot be reached."""


def python_with(version: str) -> Path:
    """The interpreter of an environment with this PySpark, installed if it is not yet."""
    folder = TARGET / f"pyspark-{version}"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        venv.create(folder, clear=True, with_pip=False, symlinks=True)
        _install(version, _site(folder))
        done.touch()
    return python


def _site(folder: Path) -> Path:
    paths = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", vars=paths))


def _install(version: str, site: Path) -> None:
    ours = sysconfig.get_path("purelib")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--target", str(site), f"pyspark=={version}"],
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise NotInstallable(f"PySpark {version} cannot be installed: {done.stderr.strip()[-300:]}")
    # As a line of code, which also follows the links of packages that are installed to be edited.
    (site / "others.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
