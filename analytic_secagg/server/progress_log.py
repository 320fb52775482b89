"""Progress of a run, for people and programs: rounds, counts, bytes and deadlines, never a message's content."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from analytic_secagg.console.output_files import append_line

LOG = logging.getLogger("analytic_secagg.run")


@dataclass(slots=True)
class ProgressLog:
    """A run's log, and the same as lines of JSON in a file beside its model.

    Args:
        path: the file.
        log: the log; an engine may have one that it shows to whoever follows the run.
        goes_on: whether it goes on with what is in the file, instead of making it anew.
    """

    path: Path
    log: logging.Logger = LOG
    goes_on: bool = False
    _started: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.goes_on:
            self.path.write_text("")

    def say(self, event: str, **details: object) -> None:
        """Note an event with numbers and public names. A line that cannot be written to the file stops nothing."""
        self.log.info("%s: %s", event, ", ".join(f"{name} {value}" for name, value in details.items()))
        line = {"seconds": round(time.monotonic() - self._started, 3), "event": event, **details}
        if not append_line(self.path, json.dumps(line)):
            self.log.warning("the line above could not be written to %s; free space on its disk", self.path)
