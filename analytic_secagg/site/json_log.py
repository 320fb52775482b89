"""A site's log as lines of JSON in a file of its own, under whatever engine."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from analytic_secagg.console.output_files import append_line

_ALL = logging.getLogger("analytic_secagg")
"""Above the logs of every part; what other software says is not in the file."""


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message. A traceback, in which values stand, is left out."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        return json.dumps(said)


class _LinesFile(logging.Handler):
    """Append each line to a file; one that cannot be written is left out, and is in the engine's log all the same."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        append_line(self._path, self.format(record))


@contextmanager
def logged(path: Path | None) -> Iterator[None]:
    """Append what is logged meanwhile to a file that its owner alone reads; None leaves logs where they go anyway.

    A file that cannot be written to stops nothing; the command ``health`` says so.
    """
    if path is None:
        yield
        return
    handler, level = _LinesFile(path), _ALL.level
    _ALL.addHandler(handler)
    _ALL.setLevel(logging.INFO)
    try:
        yield
    finally:
        _ALL.setLevel(level)
        _ALL.removeHandler(handler)
        handler.close()
