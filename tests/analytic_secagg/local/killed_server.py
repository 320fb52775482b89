"""The local engine's server, which writes down each step that it records, and is killed at one of them.

``steps`` beside its folder gets a line for each: a save of the run's state, right before or right after, or an event in
the run's log. ``kill`` there says at which it ends, by its number; the file is removed with that.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from analytic_secagg.local import server
from analytic_secagg.server.progress_log import ProgressLog
from analytic_secagg.server.run_store import RunStore


def main(folder: Path, pace_seconds: float) -> None:
    kill, steps, save, say = folder / "kill", folder / "steps", RunStore._save, ProgressLog.say
    count = len(steps.read_text().splitlines()) if steps.exists() else 0

    def step(name: str) -> None:
        nonlocal count
        count += 1
        with steps.open("a") as file:
            file.write(name + "\n")
        if kill.exists() and int(kill.read_text()) == count:
            kill.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def saves(store: RunStore, records: Any, **options: Any) -> None:
        names = " ".join(sorted(records))
        step(f"before saving {names}")
        save(store, records, **options)
        step(f"after saving {names}")

    def says(log: ProgressLog, event: str, **details: Any) -> None:
        say(log, event, **details)
        step(f"{event} {details.get('round', details.get('sent', ''))}".strip())

    RunStore._save, ProgressLog.say = saves, says  # type: ignore[method-assign, assignment]
    server.main(folder, pace_seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
