"""Participation log: the means that a node's updates entered, and the rules that repeated rounds must keep."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from secagg.errors import ConsentRefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """One line of the log.

    Args:
        session: id of the sum, in hexadecimal digits; likewise the model's digest.
        model: that was trained.
        clients: the cohort, before the vector leaves; the survivors once this node is asked to sign or to unmask them.
            By their public keys in hexadecimal digits, which no other roster gives to somebody else; without a roster
            by name.
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
        lines: of JSON, the oldest first; ``log_in_state`` keeps them for a run, ``log_of_site`` for all runs.
        min_change: fewest clients by which cohorts and survivors may differ; 1 permits any difference.
        keep: stores one further line of a session; once it returns, the line survives a crash.

    Example:
        >>> log = ParticipationLog([], min_change=3, keep=lambda session, line: None)
        >>> log.note(Participation(session="01", model="aa", clients=("1", "2", "3", "4")))
        >>> log.check(Participation(session="02", model="bb", clients=("1", "2", "3")))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        secagg.errors.ConsentRefusedError: this cohort differs from that of an earlier mean by 1 clients, ...
    """

    def __init__(self, lines: Sequence[str], *, min_change: int, keep: Callable[[bytes, str], None]) -> None:
        self.lines, self._min_change, self._keep = [*lines], min_change, keep

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
            if one.session == wanted.session:
                if has_begun:
                    continue
                raise ConsentRefusedError("this node took part in a sum of this session id already: draw a fresh one")
            if one.model == wanted.model:
                raise ConsentRefusedError(
                    "this node's update of this model is in a sum already, and a second one could expose it: train "
                    "another model, or begin with other weights"
                )
            n_changed = len(chosen.symmetric_difference(one.clients))
            if 0 < n_changed < self._min_change:
                raise ConsentRefusedError(
                    f"this cohort differs from that of an earlier mean by {n_changed} clients, and their updates could "
                    f"be read off the two means: change no client, or at least {self._min_change}, or have the node's "
                    "owner state a smaller min_change"
                )

    def note(self, one: Participation) -> None:
        """Add a line, before this node's vector or signature leaves.

        Raises:
            SiteFileError: it cannot be stored. Nothing may leave the node then.
        """
        line = json.dumps(asdict(one))
        self._keep(bytes.fromhex(one.session), line)
        self.lines.append(line)


@contextmanager
def log_in_state(state: MutableMapping[str, Any], min_change: int) -> Iterator[ParticipationLog]:
    """Open the log of a run, which an engine keeps with the node's state."""

    def keep(session: bytes, line: str) -> None:
        state["log"] = [*state.get("log", []), line]

    yield ParticipationLog(list(state.get("log", [])), min_change=min_change, keep=keep)


@contextmanager
def log_of_site(file: SiteFile, min_change: int) -> Iterator[ParticipationLog]:
    """Open the log of all runs of a site, which is a part of its query log.

    Raises:
        SiteFileError: the query log was lost, emptied or restored, and its owner has not accepted that.
    """
    with Site(file).logging_means() as store:
        yield ParticipationLog(store.means(), min_change=min_change, keep=store.note_mean)
