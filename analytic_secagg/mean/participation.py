"""Participation log: the means that a node's updates entered, and the rules that repeated rounds must keep."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from secagg.errors import ConsentRefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """One line of the log.

    Args:
        session: id of the sum, in hexadecimal digits; likewise the model's digest.
        model: that was trained.
        clients: names of the cohort, before the vector leaves; of the survivors once this node is asked to sign them.
    """

    session: str
    model: str
    clients: tuple[str, ...]


class ParticipationLog:
    """The log of one node.

    Two rules bind it. An update of a model enters one sum: a second sum over other survivors would show the difference.
    And no cohort differs from an earlier one by 1 to ``min_change - 1`` clients, where updates of successive models
    are alike: the difference of two means would show these clients' updates.

    Args:
        lines: of JSON, the oldest first; ``log_in_state`` keeps them for a run, ``log_in_file`` for all runs.
        min_change: fewest clients by which cohorts and survivors may differ; 1 permits any difference.

    Example:
        >>> log = ParticipationLog([], min_change=3)
        >>> log.note(Participation(session="01", model="aa", clients=("1", "2", "3", "4")))
        >>> log.check(Participation(session="02", model="bb", clients=("1", "2", "3")))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        secagg.errors.ConsentRefusedError: this cohort differs from that of an earlier mean by 1 clients, ...
    """

    def __init__(self, lines: list[str], *, min_change: int = 1) -> None:
        self.lines, self._min_change = lines, min_change

    def check(self, wanted: Participation, *, has_begun: bool = False) -> None:
        """Refuse a mean that breaks a rule.

        Args:
            wanted: what this node would take part in.
            has_begun: whether a line of the same session is this one's own.

        Raises:
            ConsentRefusedError: which rule, and what to do.
        """
        chosen = {*wanted.clients}
        for one in (Participation(**json.loads(line)) for line in self.lines):
            if has_begun and one.session == wanted.session:
                continue
            if one.model == wanted.model:
                raise ConsentRefusedError(
                    "this node's update of this model is in a sum already, and a second one could expose it: train "
                    "another model, or begin with other weights"
                )
            n_changed = len(chosen.symmetric_difference(one.clients))
            if 0 < n_changed < self._min_change:
                raise ConsentRefusedError(
                    f"this cohort differs from that of an earlier mean by {n_changed} clients, and their updates could "
                    f"be read off the two means: change no client, or at least {self._min_change}"
                )

    def note(self, one: Participation) -> None:
        """Add a line, before this node's vector or signature leaves."""
        self.lines.append(json.dumps(asdict(one)))


@contextmanager
def log_in_state(state: MutableMapping[str, Any], min_change: int) -> Iterator[ParticipationLog]:
    """Open the log of a run, which an engine keeps with the node's state."""
    log = ParticipationLog(list(state.get("log", [])), min_change=min_change)
    n_before = len(log.lines)
    yield log
    if len(log.lines) > n_before:
        state["log"] = log.lines


@contextmanager
def log_in_file(path: Path, min_change: int) -> Iterator[ParticipationLog]:
    """Open the log of all runs: a file of lines of JSON, locked, and on the disk before this ends.

    Raises:
        OSError: the disk took no line, or part of one. Nothing may leave the node then.
    """
    import fcntl  # POSIX only, so that the rest runs anywhere

    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        log = ParticipationLog(path.read_text(encoding="utf-8").splitlines(), min_change=min_change)
        n_before = len(log.lines)
        yield log
        if added := log.lines[n_before:]:
            content, size = "".join(f"{line}\n" for line in added).encode(), os.fstat(descriptor).st_size
            if os.write(descriptor, content) != len(content):
                os.ftruncate(descriptor, size)
                raise OSError(f"the disk is full: it took only part of a line of {path}; free space")
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
