"""Brings Python workers what they need: on other machines it is sent along, on this one pointed to.

Forebay and its two compiled dependencies go as one archive that Spark unpacks beside each executor, where
PYTHONPATH points: a zip on the path alone would not do, since compiled modules cannot be imported from one.
Spark also plans in workers beside the driver, with the executors' Python; these find everything where it is.
Executors need Python of the same version and platform, and pyarrow, which Spark's own Arrow features need.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("forebay", "pyspark_forebay")
DISTRIBUTIONS = (
    "cramjam",
    "fastcrc",
    "fastavro",
    "protobuf",
    "grpcio-tools",
    "jsonschema-rs",
    "obstore",
    "typing-extensions",
)
"""Those of schemas and of object stores only where they are installed."""
FOLDER = "forebay_packages"
_SKIPPED = frozenset({"__pycache__"})


def settings(master: str, folder: Path | None = None) -> dict[str, str]:
    """For a session that is yet to be started; nothing on this machine alone, where all is there already."""
    if master.startswith(("local", "sc://")):
        return {}
    point_planners()
    archive = pack(folder or Path(tempfile.mkdtemp(prefix="forebay-ship-")))
    return {"spark.archives": f"{archive}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}


def point_planners() -> None:
    """Before the JVM is started, whose environment its workers on this machine inherit."""
    roots = [str(Path(path.as_posix().removesuffix(name))) for name, path in _files()]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [*known, *roots])))


def pack(folder: Path) -> Path:
    archive = folder / f"{FOLDER}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name, path in sorted(_files()):
            target.write(path, name)
    return archive


def _files() -> Iterator[tuple[str, Path]]:
    """Each file by the name that it has below a folder on the path."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        root = Path(spec.origin).parent
        for path in root.rglob("*"):
            if path.is_file() and not _SKIPPED.intersection(path.parts):
                yield str(path.relative_to(root.parent)), path
    for distribution in DISTRIBUTIONS:
        yield from _of_distribution(distribution)


def _of_distribution(name: str) -> Iterator[tuple[str, Path]]:
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if ".." not in file.parts and not _SKIPPED.intersection(file.parts):
            yield str(file), Path(str(file.locate()))
