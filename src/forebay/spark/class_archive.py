"""Spark's classes, kept parsed between starts: loading them is half of what a short job costs a JVM.

From Java 19 on a JVM makes such an archive by itself when it ends, uses it at the next start, and makes it
anew when Java or Spark has changed. It is about 165 MB. Earlier versions are asked to make it, under a name
of its own for each process, and a later start gives it its final name: a JVM that is killed while it writes,
or two at a time, leave no half an archive. A JVM does without one that does not fit, and says nothing.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

AUTOMATIC_VERSION_MIN = 19
VARIABLE = "FOREBAY_CACHE_DIR"
"""Where the archive is kept; empty for none. Unless set, `forebay` in the user's cache directory."""
FINISHED_S = 20.0
"""A file that nobody has written to for this long is finished, once its process is gone."""

# Other makers' JVMs start too; and what the JVM has to say of single classes is not for users.
_QUIET = "-XX:+IgnoreUnrecognizedVMOptions -Xlog:disable -Xlog:all=error:stderr"


def options(java_home: Path, java_version: int, spark: Path, environ: Mapping[str, str] = os.environ) -> str:
    """For the command line of a JVM; empty where there can be no archive.

    `spark` is Spark's directory: JVMs with other classes do not share an archive.
    """
    folder = _folder(environ)
    if folder is None:
        return ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if java_version >= AUTOMATIC_VERSION_MIN:
            archive = folder / f"spark-{_digest(java_home, spark)}.jsa"
            return f'{_QUIET} -XX:+AutoCreateSharedArchive "-XX:SharedArchiveFile={archive}"'
        archive = folder / f"spark-{_digest(java_home, spark, _age(java_home), _age(spark))}.jsa"
        _take_over(archive)
        use = "SharedArchiveFile" if archive.exists() else "ArchiveClassesAtExit"
        name = archive if archive.exists() else f"{archive}.{os.getpid()}"
        return f'{_QUIET} "-XX:{use}={name}"'
    except OSError:
        return ""


def _take_over(archive: Path) -> None:
    """Give an archive that an earlier process has made its name, and remove what is left of others."""
    for made in archive.parent.glob(f"{archive.name}.*"):
        if _is_running(made.suffix.removeprefix(".")) or time.time() - made.stat().st_mtime < FINISHED_S:
            continue
        if archive.exists():
            made.unlink()
        else:
            made.replace(archive)


def _is_running(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _digest(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]


def _age(home: Path) -> int:
    """When Java's classes or Spark's were installed: an update in place has other classes."""
    for classes in (home / "lib" / "modules", home / "jars"):
        if classes.exists():
            return classes.stat().st_mtime_ns
    return 0


def _folder(environ: Mapping[str, str]) -> Path | None:
    if VARIABLE in environ:
        return Path(environ[VARIABLE]) if environ[VARIABLE] else None
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "forebay"
