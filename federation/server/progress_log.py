"""What a run is doing, for people and programs: rounds, counts, bytes and deadlines, never a message's content."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

LOG = logging.getLogger("flwr")
"""Flower shows this log to whoever follows the run."""


@dataclass(slots=True)
class ProgressLog:
    """A run's log, and the same as lines of JSON in a file beside its model.

    Args:
        path: the file; it is made anew.
    """

    path: Path
    _started: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("")

    def say(self, event: str, **details: object) -> None:
        """Note an event with numbers and public names."""
        LOG.info("%s: %s", event, ", ".join(f"{name} {value}" for name, value in details.items()))
        line = {"seconds": round(time.monotonic() - self._started, 3), "event": event, **details}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
