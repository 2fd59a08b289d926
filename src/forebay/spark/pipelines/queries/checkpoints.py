"""Where the checkpoint of a query lies that names none.

The same command has to find it again wherever it is started, by cron or in a terminal: so it is in the user's
directory for such things, under a name made of the query and of the cluster, whatever its address. Earlier
versions put it into the working directory, under a name made of the address.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "FOREBAY_STATE_DIR"
_EARLIER = "forebay-checkpoints"


def default_checkpoint(
    bootstrap: str, cluster_id: str, query: str, to: str, environ: Mapping[str, str] = os.environ
) -> str:
    own = _state(environ) / "checkpoints" / _name(cluster_id, query, to)
    earlier = (Path(_EARLIER) / _name(bootstrap, query, to)).absolute()
    return str(earlier if earlier.is_dir() and not own.is_dir() else own)


def _name(*parts: str) -> str:
    """The last part is the topic that is written to."""
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
    return f"sql-{parts[-1]}-{digest}"


def _state(environ: Mapping[str, str]) -> Path:
    if given := environ.get(VARIABLE):
        return Path(given).absolute()
    home = environ.get("XDG_STATE_HOME", "")
    # As the specification of these directories has it: a relative one does not count.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return base / "forebay"
