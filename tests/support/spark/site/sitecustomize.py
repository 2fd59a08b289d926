"""Python runs this when it starts, where this folder is on its path: here, in what Spark starts for tests.

Spark puts its own archive of PySpark in front of the path of every worker. Python keeps no compiled code of
what it imports from an archive, so every worker would compile PySpark anew: most of the second that it takes
to start, of which Spark allows ten. Where PySpark is installed as well, workers import that.
"""

from __future__ import annotations

import sys
from pathlib import Path

ARCHIVE = "pyspark.zip"


def without_archive(path: list[str]) -> list[str]:
    rest = [entry for entry in path if Path(entry).name != ARCHIVE]
    return rest if any(Path(entry, "pyspark", "__init__.py").is_file() for entry in rest) else path


sys.path[:] = without_archive(sys.path)
