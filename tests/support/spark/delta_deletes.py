"""Deletes the first row of a file of a Delta table by a deletion vector, as Spark and Databricks do.

The library deltalake reads deletion vectors, and does not write them.
"""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack
from typing import Any

from deltalake import DeltaTable, TableFeatures

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""Of Z85, in which a vector lies in the log."""


def delete_first_row(folder: Path, path: str) -> None:
    """`path` is below the folder of the table."""
    features = [TableFeatures.DeletionVectors]
    DeltaTable(folder).alter.add_feature(features, allow_protocol_versions_increase=True)
    log = sorted((folder / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for entry in log for line in entry.read_text().splitlines()]
    (add,) = (each["add"] for each in actions if each.get("add", {}).get("path") == path)
    removed = {"path": path, "dataChange": True, "deletionTimestamp": 0, "size": add["size"]}
    change = [{"remove": removed}, {"add": {**add, "deletionVector": _first_row()}}]
    text = "".join(f"{json.dumps(each)}\n" for each in change)
    (folder / "_delta_log" / f"{len(log):020}.json").write_text(text)


def _first_row() -> dict[str, Any]:
    """A 64-bit roaring bitmap of one number, 0."""
    bitmap = pack("<IIHHIH", 12346, 1, 0, 0, 16, 0)
    data = pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = data + bytes(-len(data) % 4)
    words = [int.from_bytes(padded[at : at + 4]) for at in range(0, len(padded), 4)]
    text = "".join(_DIGITS[word // 85**place % 85] for word in words for place in range(4, -1, -1))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": 1}
