"""Result files that appear whole or not at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from simulations.errors import OutputError


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A place for a result, checked when the command starts rather than after hours of work.

    Raises:
        OutputError: the folder does not exist or cannot be written to, or the path is a folder itself.
    """

    path: Path

    def __post_init__(self) -> None:
        folder = self.path.parent
        if not folder.is_dir():
            raise OutputError(f"cannot write {self.path}: the folder {folder} does not exist; create it first")
        if self.path.is_dir():
            raise OutputError(f"cannot write {self.path}: it is a folder; name a file in it")
        if not os.access(folder, os.W_OK):
            raise OutputError(f"cannot write {self.path}: no permission to write to the folder {folder}; name another")

    def write(self, text: str) -> None:
        """Put ``text`` there: written beside it first, then moved into place in one step.

        Raises:
            OutputError: the system refused, for instance because the disk is full; what was there before stays.
        """
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            with beside.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            raise OutputError(
                f"cannot write {self.path}: {error.strerror or error}; free space or name another"
            ) from error
        finally:
            beside.unlink(missing_ok=True)
