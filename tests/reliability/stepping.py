"""A party's process that counts its steps, and at one of them dies, stops or waits: ``role folder argument``.

``steps`` in its folder gets a line for each: a save of its state, right before or right after; an event in the run's
log, at the server; a message that came or is answered, at a node. ``fault`` there says at which step something
happens, by its number, and what: ``kill`` (SIGKILL), ``stop`` (SIGSTOP), or ``hold``, which waits until the file
``held`` is gone. The file is removed with that. With ``each kill`` a server's process dies at the first save at which
none died before, and notes it in ``died``; the file stays, so that processes that follow each other die at all.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from analytic_secagg.local import node, server
from analytic_secagg.server.announcements import TITLE
from analytic_secagg.server.progress_log import ProgressLog
from analytic_secagg.server.run_store import RunStore
from analytic_secagg.site.store import SessionStore


class Steps:
    """The steps of one process.

    Args:
        folder: of the party.
    """

    def __init__(self, folder: Path) -> None:
        self._fault, self._steps, self._held = folder / "fault", folder / "steps", folder / "held"
        self._died = folder / "died"

    def take(self, name: str) -> None:
        """Count a step, and do what is due at it."""
        with self._steps.open("a+") as file:
            file.write(name + "\n")
            file.seek(0)
            count = sum(1 for _ in file)
        if not self._fault.exists():
            return
        number, what = self._fault.read_text().split()
        if number == "each":
            self._die_once(name)
            return
        if int(number) != count:
            return
        if what == "hold":
            self._held.touch()
        self._fault.unlink()
        if what != "hold":
            os.kill(os.getpid(), signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        while self._held.exists():
            time.sleep(0.01)

    def _die_once(self, name: str) -> None:
        with self._died.open("a+") as file:
            file.seek(0)
            if "saving" in name and name not in file.read().splitlines():
                file.write(name + "\n")
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)


def counted(folder: Path, pythonpath: str) -> dict[str, str]:
    """The environment in which an engine's own processes count the steps of the server in this folder."""
    tests = Path(__file__).resolve().parents[1]
    path = os.pathsep.join([str(tests / "reliability" / "counted"), str(tests), pythonpath])
    return {"PYTHONPATH": path, "COUNT_STEPS_OF": str(folder)}


def count_server_steps(folder: Path) -> None:
    """Let this process, of whatever engine's server, count its steps.

    A save is named by its records and its sum, and one of the sum's session or addresses by the round that it follows
    too, so that a process that goes on gives it the same name.
    """
    steps, save, say, closed = Steps(folder), RunStore._save, ProgressLog.say, [""]

    def saves(store: RunStore, records: Any, **options: Any) -> None:
        name = f"saving {' '.join(sorted(records))}: {len(store.finished)} totals"
        if records.keys() <= {"session", "addresses"}:
            name += f", after {closed[0] or 'no round'}"
        steps.take(f"before {name}")
        save(store, records, **options)
        steps.take(f"after {name}")
        if any(record.startswith("total") for record in records):
            closed[0] = ""

    def says(log: ProgressLog, event: str, **details: Any) -> None:
        say(log, event, **details)
        if event == "round closes" and details["round"] != TITLE:  # what was announced is stored, and not asked again
            closed[0] = details["round"]
        steps.take(f"{event} {details.get('round', details.get('sent', ''))}".strip())

    RunStore._save, ProgressLog.say = saves, says  # type: ignore[method-assign, assignment]


def count_node_steps(folder: Path) -> None:
    """Let this process of a node of the local engine count its steps."""
    steps, run, handle = Steps(folder), SessionStore.run, node.handle_message

    def runs(store: SessionStore, statement: str, *values: object) -> Any:
        if statement.startswith(("SELECT", "PRAGMA")):
            return run(store, statement, *values)
        steps.take(f"before: {' '.join(statement.split()[:5])}")
        found = run(store, statement, *values)
        steps.take(f"after: {' '.join(statement.split()[:5])}")
        return found

    def handles(read_file: Any, kind: str, read_content: Any) -> Any:
        steps.take(f"{kind} came")
        said = handle(read_file, kind, read_content)
        steps.take(f"{kind} is answered")
        return said

    SessionStore.run, node.handle_message = runs, handles  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    role, place, argument = sys.argv[1:]
    if role == "server":
        count_server_steps(Path(place))
        server.main(Path(place), float(argument))
    else:
        count_node_steps(Path(place))
        node.main(Path(place), int(argument))
