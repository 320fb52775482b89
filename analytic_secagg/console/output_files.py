"""Result files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from analytic_secagg.errors import OutputError, UsageError


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A place for a result, checked when the command starts rather than after hours of work.

    Args:
        path: where it goes.
        private: whether its owner alone may read it (mode 0600), as models and totals want.

    Raises:
        OutputError: the folder does not exist or cannot be written to, or the path is a folder or device itself.
    """

    path: Path
    private: bool = False

    def __post_init__(self) -> None:
        folder = self.path.parent
        if not folder.is_dir():
            raise OutputError(f"cannot write {self.path}: the folder {folder} does not exist; create it first")
        if self.path.is_dir():
            raise OutputError(f"cannot write {self.path}: it is a folder; name a file in it")
        if self.path.exists() and not self.path.is_file():
            raise OutputError(f"cannot write {self.path}: it is a device or pipe, not a file; name a file")
        with self._refusals_explained(), self._beside() as beside:  # asks the system itself: rights, disk, long names
            beside.touch(exist_ok=False)

    def write(self, content: str | bytes) -> None:
        """Put a text, or bytes, there: written beside it first, then moved into place in one step.

        Raises:
            OutputError: the system refused, for instance because the disk is full; what was there before stays.
        """
        whole = content.encode() if isinstance(content, str) else content
        self.fill(lambda file: file.write(whole))

    def fill(self, write: Callable[[BinaryIO], object]) -> None:
        """Write what ``write`` puts into a file of bytes, in the same way."""
        from analytic.array_file import owner_only  # loads numpy, which no command's help needs

        with self._refusals_explained(), self._beside() as beside:
            with open(beside, "xb", opener=owner_only if self.private else None) as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
            try:
                folder = os.open(self.path.parent, os.O_RDONLY)
            except PermissionError:  # Windows opens no folder
                return
            try:
                os.fsync(folder)  # else a power cut may bring back what was there before
            finally:
                os.close(folder)

    @contextmanager
    def _beside(self) -> Iterator[Path]:
        """Yield the file that holds the content until it is whole; nothing is left there."""
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            yield beside
        finally:
            beside.unlink(missing_ok=True)

    @contextmanager
    def _refusals_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(f"cannot write {self.path}: {reason}; free space, or name another place") from error


LOG_BYTES = 10 << 20
"""A log that has grown beyond this is moved to a file of its name with ``.1``, over an older one, and begun anew."""


def append_line(path: Path, text: str) -> bool:
    """Append a line to a log that its owner alone may read; return whether it is there, whole.

    Nothing is raised, since no work may fail for its log's sake. A line that a full disk cut short is taken out again.
    With the one before, a log takes at most twice ``LOG_BYTES``.
    """
    content = text.encode("utf-8", "backslashreplace") + b"\n"
    with suppress(OSError):
        if path.is_file() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return False
    try:
        size, n_written = os.fstat(descriptor).st_size, 0
        with suppress(OSError):
            n_written = os.write(descriptor, content)
        if 0 < n_written < len(content):
            with suppress(OSError):
                os.ftruncate(descriptor, size)
        return n_written == len(content)
    finally:
        with suppress(OSError):
            os.close(descriptor)


def refuse_same_file(paths: Mapping[str, Path | None]) -> None:
    """Check that no file stands under two of these arguments, where one would overwrite the other.

    Args:
        paths: the file of each argument, None where it was not given.

    Raises:
        UsageError: two of them are the same file.
    """
    given: dict[Path, str] = {}
    for argument, path in paths.items():
        if path is None:
            continue
        other = given.setdefault(path.resolve(), argument)
        if other != argument:
            raise UsageError(f"{other} and {argument} both name {path}; give each its own file")
