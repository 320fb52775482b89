"""The ServerApp: runs a learner's sums over the nodes that are online, and keeps the model."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from analytic.afl import AFL
from analytic.model_files import save_model
from federation.console.output_files import OutputFile
from federation.flower.exchange import Deadlines, Exchange
from federation.flower.grid_series import GridSeries, SeriesOverError
from federation.flower.grid_sum import run_sum
from federation.flower.progress_log import ProgressLog
from federation.flower.run_settings import RunSettings
from federation.flower.server_file import ServerFile
from federation.flower.session_exchange import SessionExchange
from federation.flower.wire import END, write_messages
from federation.modes import MODES
from federation.site.errors import UnreachableError
from federation.site.invitation import Invitation
from federation.site.terms import Terms
from secagg import PartyId, SumResult, new_session_id

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train once and leave the model in the server's own folder."""
    settings, server = RunSettings.of(context.run_config), ServerFile.of_host()
    folder = server.output / f"run-{context.run_id}"
    progress = ProgressLog(folder / "progress.jsonl")
    try:
        Training(settings, server, Exchange(grid, progress), progress).run(folder)
    except Exception as error:
        progress.say("failed", kind=type(error).__name__, reason=str(error))
        raise


class Training:
    """One run of one learner.

    Args:
        settings: the run's public settings.
        server: what the server believes.
        exchange: the way to the nodes.
        progress: where the run is followed.
    """

    def __init__(
        self,
        settings: RunSettings,
        server: ServerFile,
        exchange: Exchange,
        progress: ProgressLog,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._server, self._exchange, self._progress = settings, server, exchange, progress
        self._clock, self._sleep = clock, sleep
        settings.check_roster(server.roster)
        self._learner = settings.build_learner(len(server.roster.clients))
        self._survivors: list[tuple[PartyId, ...]] = []
        self._session = b""
        self._series: tuple[Terms, GridSeries] | None = None

    def run(self, folder: Path) -> Any:
        """The complete model, saved under ``folder``.

        Raises:
            UnreachableError: too few nodes, or a helper or the key holder is missing.
            SecureSumError, AnalyticError: no total, or none that gives a model.
        """
        started, model = self._clock(), self._learner.init()
        self._wait_for_nodes()
        try:
            while (spec := self._learner.next_sum(model)) is not None:
                result = self._sum(model)
                self._survivors.append(result.survivors)
                self._progress.say("sum", number=len(self._survivors), survivors=list(result.survivors))
                total = spec.from_vector(result.total)
                self._judge(total, result.survivors)
                model = self._learner.update(model, total, len(result.survivors))
            self._save(folder, model, self._clock() - started)
        finally:
            self._end()
        return model

    def _judge(self, total: Any, survivors: tuple[PartyId, ...]) -> None:
        """Refuse a total of raw features that gives rows away, and say what a total gives away besides.

        DeepAFL's and SAFLe's totals are of other features, whose rank says less; they are not judged.

        Raises:
            ReleaseRefusedError: the settings do not allow it.
        """
        if isinstance(self._learner, AFL):
            exact = self._learner.without_ri(total, len(survivors))
            for concern in self._settings.release_policy.before_release(exact, survivors):
                self._progress.say("concern", gate=concern.gate.value, reason=concern.message)

    def _end(self) -> None:
        """Tell all nodes, lost ones too, that the last session is over, so that they forget its secrets now."""
        record = write_messages({}, session=self._session)
        seconds = Deadlines(seconds=self._settings.round_seconds)
        contents = dict.fromkeys(self._exchange.everybody(), record)
        self._exchange.ask("END", END, contents, lambda node, content: 0, seconds)

    def _wait_for_nodes(self) -> None:
        """Wait until enough nodes are online. Which they are is looked up again before each sum."""
        needed = self._settings.nodes or len(self._server.roster.clients)
        ends = self._clock() + self._settings.join_seconds
        while len(nodes := self._exchange.online()) < needed and self._clock() < ends:
            self._sleep(1.0)
        self._progress.say("nodes", online=len(nodes), wanted=needed)
        if not nodes:
            raise UnreachableError(
                f"no node is online after {self._settings.join_seconds:g} seconds; start the SuperNodes"
            )

    def _sum(self, model: Any) -> SumResult:
        """The next sum; in a series it goes on with the one before where enough clients are left."""
        if self._series is not None:
            last, series = self._series
            terms = last.next_of_series
            self._series = terms, series
            try:
                return series.run_next(Invitation.make(terms, self._learner, model))
            except SeriesOverError as error:
                self._progress.say("series ends", reason=str(error))
        terms = self._fresh_terms()
        self._session = terms.session
        invitation = Invitation.make(terms, self._learner, model)
        exchange = SessionExchange(terms.session, self._exchange, self._progress)
        if not terms.place:
            return run_sum(invitation, self._server, exchange, self._deadlines)
        series = GridSeries(invitation, self._server.roster, exchange, self._deadlines)
        self._series = terms, series
        return series.run_first(invitation)

    @property
    def _deadlines(self) -> Deadlines:
        settings = self._settings
        return Deadlines(seconds=settings.round_seconds, quorum=settings.quorum, at_once=settings.at_once)

    def _fresh_terms(self) -> Terms:
        settings, roster = self._settings, self._server.roster
        return Terms(
            mode=settings.mode,
            session=new_session_id(),
            clients=tuple(sorted(roster.clients)),
            helpers=tuple(sorted(roster.listed(MODES[settings.mode].helper))),
            corruption=settings.corruption,
            dropout=settings.dropout,
            min_survivors=settings.min_survivors,
            previous=self._session,
            place=1 if settings.in_series else 0,
        )

    def _save(self, folder: Path, model: Any, seconds: float) -> None:
        save_model(folder / "model", self._learner, model)
        weights = hashlib.sha256(self._learner.weights_bytes(model)).hexdigest()
        summary = {
            "mode": self._settings.mode,
            "learner": self._learner.name,
            "survivors": [list(parties) for parties in self._survivors],
            "weights_sha256": weights,
            "seconds": round(seconds, 3),
        }
        OutputFile(folder / "summary.json").write(json.dumps(summary, indent=2) + "\n")
        self._progress.say("model", folder=str(folder), weights_sha256=weights)
