"""A site's log as lines of JSON in a file of its own, under whatever engine."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

_ALL = logging.getLogger("analytic_secagg")
"""Above the logs of every part; what other software says is not in the file."""


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message. A traceback, in which values stand, is left out."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        return json.dumps(said)


@contextmanager
def logged(path: Path | None) -> Iterator[None]:
    """Append what is logged meanwhile to a file that its owner alone reads; None leaves logs where they go anyway.

    Raises:
        OSError: the file cannot be written to.
    """
    if path is None:
        yield
        return
    path.touch(mode=0o600)
    handler, level = logging.FileHandler(path, encoding="utf-8"), _ALL.level
    handler.setFormatter(JsonLines())
    _ALL.addHandler(handler)
    _ALL.setLevel(logging.INFO)
    try:
        yield
    finally:
        _ALL.setLevel(level)
        _ALL.removeHandler(handler)
        handler.close()
