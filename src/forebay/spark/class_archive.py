"""Spark's classes, kept parsed between starts: loading them is half of what a short job costs a JVM.

From Java 19 on a JVM makes such an archive by itself when it ends, uses it at the next start, and makes it
anew when Java or Spark has changed. It is about 165 MB. Earlier versions of Java cannot do so by themselves.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

JAVA_VERSION_MIN = 19
VARIABLE = "FOREBAY_CACHE_DIR"
"""Where the archive is kept; empty for none. Unless set, `forebay` in the user's cache directory."""


def options(java_home: Path, java_version: int, spark: Path, environ: Mapping[str, str] = os.environ) -> str:
    """For the command line of a JVM; empty where there can be no archive.

    `spark` is Spark's directory: JVMs with other classes do not share an archive.
    """
    folder = _folder(environ)
    if java_version < JAVA_VERSION_MIN or folder is None:
        return ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    digest = hashlib.sha256(f"{java_home}\n{spark}".encode()).hexdigest()[:12]
    return (
        # Other makers' JVMs start too; and what the JVM has to say of single classes is not for users.
        "-XX:+IgnoreUnrecognizedVMOptions -Xlog:disable -Xlog:all=error:stderr -XX:+AutoCreateSharedArchive"
        f' "-XX:SharedArchiveFile={folder}/spark-{digest}.jsa"'
    )


def _folder(environ: Mapping[str, str]) -> Path | None:
    if VARIABLE in environ:
        return Path(environ[VARIABLE]) if environ[VARIABLE] else None
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "forebay"
