"""The files of delay indexes, beside the logs. What reads one is imported with the first."""

from __future__ import annotations

from os import path
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.errors import StorageError
from forebay.lazy import load
from forebay.storage.delays.open_files import OpenFiles
from forebay.storage.system_calls import sync_directory

if TYPE_CHECKING:
    from forebay.storage.delays.index import DelayIndex

FILE_NAME = "delays.sqlite"
KEPT_NAME = ".delays"
"""Marks a log that has delay notes. The topic may accept none any more, and the index may be lost."""
_OPEN_MAX = 256


class DelayIndexFiles:
    def __init__(self, open_max: int = _OPEN_MAX) -> None:
        self._files = OpenFiles(open_max)

    def exists(self, directory: str) -> bool:
        # Strings all the way: this runs per partition.
        return path.lexists(f"{directory}/{FILE_NAME}") or path.lexists(f"{directory}/{KEPT_NAME}")

    def keep(self, directory: str) -> None:
        mark = Path(directory) / KEPT_NAME
        if mark.exists():
            return
        try:
            mark.touch()
            sync_directory(directory)
        except OSError as error:
            raise StorageError(f"cannot write {mark}: {error}") from error

    def of(self, directory: str) -> DelayIndex:
        file = Path(directory) / FILE_NAME
        index: DelayIndex = load("forebay.storage.delays.sqlite_index:index_in_file")(file, self._files)
        return index
