"""A run: a learner's sums over the nodes that are online, and the model that they end in.

An engine calls ``train`` with its ``exchange.Transport``. For each sum that ``federation.Federation`` asks for:

1. ``RunSettings.proposal`` states the sum, with a fresh session id;
2. ``announcements.with_announcements`` adds the keys of its helpers, where the mode has any (``context``);
3. ``grid_sum.run_sum``, or a ``grid_series.GridSeries``, sends the proposal to all nodes (``invite``), takes their
   first messages, and then drives the server's state machine round by round (``step``) until it has a result;
4. ``Federation.take`` makes the next model of it.

``run_store.RunStore`` has what is needed to go on: a process that died is started again with the same settings, and
does. At the end all nodes are told so (``end``), with the model, and the folder has it with totals, summary and log.
``site.site`` says what a site does with each message.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analytic.errors import AnalyticError
from analytic.model_files import model_from_bytes, model_to_bytes, save_model
from analytic.scaling import Columns
from analytic_secagg.audit_plan import BoundPlan
from analytic_secagg.code_version import code_version
from analytic_secagg.configurations import configuration_digest
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.errors import FederationError, OutputError
from analytic_secagg.federation import Federation, Step, SumRecord
from analytic_secagg.modes import find_mode
from analytic_secagg.run_account import account_of_run, account_of_sum
from analytic_secagg.server.announcements import with_announcements
from analytic_secagg.server.exchange import Deadlines, Exchange, NodeId, SessionExchange, Transport
from analytic_secagg.server.grid_series import GridSeries, SeriesOverError
from analytic_secagg.server.grid_sum import ServerSide, certify, failure_of, run_sum
from analytic_secagg.server.progress_log import LOG, ProgressLog
from analytic_secagg.server.reserve import Reserve
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.server.run_store import NodeAddresses, NotStoredError, Outcome, RunStore, StoppedRunError
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import DeploymentError, UnreachableError
from analytic_secagg.site.messages import END, write_end
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.results import RunResults
from analytic_secagg.totals import totals_to_bytes
from secagg import PartyId, SumResult, new_session_id
from secagg.errors import SecureSumError, TooFewSurvivorsError

GO_ON = (
    "start the run again with the same settings once those who gave no answer can be reached, or there is space: it "
    "goes on with the same session"
)

NO_SPREAD = (
    "nothing is learned from these features, numbered from 0, which have one value in all rows as far as their format "
    "tells: where sites know that values differ by little beside their size, agree on an offset in the schema"
)

NOT_ENDED = (
    "start it again with the settings and the roster that it began with; where a key in that roster is lost, or a "
    "party does not come back, give it up with the command abandon"
)


def train(
    run_config: Mapping[str, Any],
    server: ServerFile,
    transport: Transport,
    folder: Path,
    *,
    log: logging.Logger = LOG,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Any:
    """Return the model of one run over an engine's nodes; ``folder`` holds it, its totals, a summary and a log.

    Args:
        run_config: the run's public settings (``RunSettings``), with hyphens in their names.
        server: what the server believes.
        transport: the engine's way to the nodes.
        folder: of this run.
        log: says what the run is doing.
        clock: seconds that only go forward.
        sleep: waits so many seconds.

    Raises:
        DeploymentError: wrong settings, or nodes that cannot be reached.
        SecureSumError, AnalyticError: no total, or none that gives a model.
    """
    settings = RunSettings.of(run_config)
    with RunStore.opened(folder) as store:
        goes_on = store.begin(plan_of(settings, server), moment=datetime.now(UTC).isoformat(timespec="seconds"))
        progress = ProgressLog(folder / "progress.jsonl", log, goes_on=goes_on)

        def exchange() -> Exchange:
            return Exchange(transport, progress, identity=server.identity, clock=clock, sleep=sleep)

        try:
            training = Training(settings, server, exchange(), progress, store, clock=clock, sleep=sleep)
            training.wait_for_nodes()
            if not goes_on:
                _tell_of_failures(server, exchange, progress)
            model = training.run(folder)
        except Exception as error:
            progress.say("failed", kind=type(error).__name__, reason=str(error))
            raise
    if server.keep_runs is not None:
        RunStore.prune(server.output, server.keep_runs)
    return model


def folder_of(run_config: Mapping[str, Any], server: ServerFile, name: str) -> Path:
    """Return the folder of a run: where a run of the same settings and roster has not ended, that one's.

    Args:
        run_config: the run's public settings.
        server: what the server believes.
        name: the engine's for this run.

    Raises:
        RunSettingsError: wrong settings.
    """
    plan = plan_of(RunSettings.of(run_config), server)
    for folder in RunStore.left(server.output):
        with suppress(DeploymentError), RunStore.opened(folder) as store:
            if store.is_of(plan) and not store.proof:
                return folder
    return server.output / name


def _tell_of_failures(server: ServerFile, exchange: Callable[[], Exchange], progress: ProgressLog) -> None:
    """Tell the sites of earlier runs that failed when nobody could be told, so that they can free their rows.

    Each has an exchange of its own: where its parties were says nothing of where those of another run are.
    """
    for folder in RunStore.left(server.output):
        with suppress(FederationError, AnalyticError, SecureSumError), RunStore.opened(folder) as store:
            if store.failure is None:
                progress.say("not ended", run=folder.name, remedy=NOT_ENDED)
                continue
            settings = RunSettings.of({name.replace("_", "-"): value for name, value in store.settings.items()})
            log = ProgressLog(folder / "progress.jsonl", progress.log, goes_on=True)
            Training(settings, server, exchange(), log, store).run(folder)  # raises its error once all are told


def plan_of(settings: RunSettings, server: ServerFile) -> dict[str, Any]:
    """Return what a run is of; a run that did not end goes on with the same settings and roster only."""
    return {"settings": settings.model_dump(mode="json"), "roster": server.roster.fingerprint}


class Training:
    """One run of one learner.

    Args:
        settings: the run's public settings.
        server: what the server believes.
        exchange: the way to the nodes.
        progress: where the run is followed.
        store: the run's state. What a process that died left there is gone on with.
    """

    def __init__(
        self,
        settings: RunSettings,
        server: ServerFile,
        exchange: Exchange,
        progress: ProgressLog,
        store: RunStore,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._server, self._exchange, self._progress = settings, server, exchange, progress
        self._store, self._clock, self._sleep = store, clock, sleep
        settings.check_roster(server.roster)
        self._federation = settings.federation(server.roster)
        digest = configuration_digest(self._federation.learner)
        self._progress.say("configuration", sha256=digest.hex(), agreed=digest in server.roster.configurations)
        self._session = self._failure = b""
        self._is_told = False
        """Whether the sites were told how it ended; before that a run has not ended, and is gone on with."""
        self._plan = None if server.plan is None else BoundPlan.read(server.plan)
        self._first: TrainingProposal | None = None
        """The proposal of the first sum: what the parties agreed to, and what a plan is bound to."""
        self._series: GridSeries | None = None
        self._reserve = Reserve(progress.path.parent)
        self._totals: list[SumResult] = []
        self._sessions: list[bytes] = []
        self._model: dict[bool, bytes] = {}
        """The file of the model, or of its evaluation, for whom the roster names (True) and for others."""
        self._addresses = store.addresses
        exchange.node_of.update(self._addresses.node_of)
        for done in store.finished:
            self._first = self._first or TrainingProposal.from_bytes(done.proposal)
            self._session = done.session
            self._note(done.result)

    def run(self, folder: Path) -> Any:
        """The complete model, saved under ``folder``.

        Raises:
            UnreachableError: too few nodes, or a helper or the key holder is missing.
            SecureSumError, AnalyticError: no total, or none that gives a model.
            StoppedRunError: the run had failed before its server was started again; now its sites were told.
        """
        try:
            model = self._run(folder)
        except BaseException as error:
            if self._is_told:
                self._store.end(_outcome(error))
            raise
        self._store.end(("", ""))
        return model

    def _run(self, folder: Path) -> Any:
        started = self._clock()
        if self._federation.noise is not None:
            self._progress.say("noise", bill=self._federation.noise.explain())
        with self._ending():
            if (failure := self._store.failure) is not None:
                raise StoppedRunError(*failure)
            while (step := self._federation.next_sum) is not None:
                self._take(self._sum(step))
            self._save(folder, self._clock() - started)
        if self._settings.evaluate:
            self._evaluate(folder)
        return self._federation.model

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Tell the sites how that ends what is done meanwhile, in whatever way, unless it may still go on."""
        may_go_on = False
        try:
            yield
        except BaseException as error:  # an operator's Ctrl-C too: else every site counts a total that is none
            may_go_on = self._fail(error)
            raise
        finally:
            self._reserve.release()
            if may_go_on:
                self._progress.say("may go on", remedy=GO_ON)
            else:
                self._end()

    def _fail(self, error: BaseException) -> bool:
        """Ask the helpers of the sum at work to certify that no total comes out; return whether it may still go on.

        A sum that lacks only parties who gave no answer waits for them, and nobody's vector is lost; so does one whose
        server has no space. Where helpers can certify that too few clients are a failure for good, this frees the rows
        at once, and so comes first.
        """
        try:
            proposal = self._store.proposal
            try:
                failure = None if proposal is None else failure_of(proposal, self._server)
            except (FederationError, AnalyticError, SecureSumError):
                proposal = failure = None  # what these parties cannot agree to was no sum, nor what none saw
            is_final = failure is not None and isinstance(error, TooFewSurvivorsError)
            if isinstance(error, OutputError | NotStoredError):
                return self._store.has_asked
            if proposal is not None and not is_final and self._exchange.may_still_end(error):
                return True
            if not isinstance(error, StoppedRunError):
                self._store.fail(_outcome(error), self._addresses)
        except NotStoredError as full:
            self._progress.say("not stored", reason=str(full))
            return True
        if proposal is not None:
            self._session, self._failure = proposal.session, self._store.proof
        if proposal is None or failure is None or self._failure:
            return False
        with self._exchange.accounted():
            certify(failure, proposal, self._side(self._session_exchange(proposal)))
        self._failure = failure.proof
        with suppress(NotStoredError):  # who is there is told all the same
            self._store.keep_proof(failure.proof)
        self._progress.say("failure", certified=bool(self._failure))
        known = [party for party in proposal.helpers if party in self._addresses.node_of]  # who joined, and can certify
        return not self._failure and sum(map(self._exchange.is_away, known)) >= failure.n_more

    def _take(self, result: SumResult) -> None:
        """Go on with a total, unless the settings' release policy refuses it."""
        proposal = self._store.proposal
        assert proposal is not None, "it is removed with its total"
        self._store.close_sum(proposal, result)
        number = len(self._federation.sums) + 1
        self._progress.say("sum", number=number, survivors=list(result.survivors))
        record = self._note(result)
        helpers = self._server.roster.listed(find_mode(self._settings.mode).helper)
        for owner, holder in record.disputes:
            if owner in helpers:
                self._progress.say("different sums of masks", helpers=[owner, holder])
            else:
                self._progress.say("wrong share", owner=owner, holder=holder)
        for client, helper in record.complaints:
            self._progress.say("wrong seeds", client=client, helper=helper)
        for concern in record.concerns:
            self._progress.say("concern", gate=concern.gate.value, reason=concern.message)
        columns = getattr(self._federation.model, "columns", None)
        if number == 2 and isinstance(columns, Columns) and columns.without_spread:
            self._progress.say("no spread", columns=list(columns.without_spread), remedy=NO_SPREAD)

    def _note(self, result: SumResult) -> SumRecord:
        """Make the next model of a total."""
        record = self._federation.take(result)
        self._totals.append(result)
        self._sessions.append(self._session)
        return record

    def _evaluate(self, folder: Path) -> None:
        """Judge the saved model through one more sum, by itself, of rows that the sites keep for that.

        Its counts are a total, whose holders take their own part off: only they are given it.

        Raises:
            SecureSumError: no total; the model stays saved.
        """
        saved = model_from_bytes(self._model[False])
        evaluation = self._settings.evaluation(saved.learner, saved.model)
        roster = self._server.roster
        federation = Federation[Any](
            evaluation,
            release=self._settings.release_policy(roster),
            max_client_rows=roster.max_client_rows,
            n_clients=len(roster.clients),
        )
        step = federation.next_sum
        assert step is not None, "an evaluation begins with its sum"
        self._series, self._model = None, {}  # every node has its results already
        with self._ending():
            result = self._sum(step, in_series=False)
            federation.take(result)
            self._model, self._totals = {True: model_to_bytes(evaluation, federation.model)}, [result]
        said = {"survivors": list(result.survivors), **federation.model.figures}
        OutputFile(folder / "evaluation.json", private=True).write(json.dumps(said, indent=2) + "\n")
        self._progress.say("evaluation", **said)

    def _end(self) -> None:
        """Tell all nodes, lost ones too, that the last session is over, so that they forget its secrets now.

        Who was not there is told of a certified failure when the next run begins, since it frees rows. All get the
        model, if there is one; those where a party is that the roster names get the totals, too.
        """
        holders = {self._exchange.node_of.get(party) for party in self._server.roster.totals}
        content = {holds: write_end(self._session, self._results(holds), self._failure) for holds in (False, True)}
        seconds = Deadlines(seconds=self._settings.round_seconds)
        contents = {node: content[node in holders] for node in self._exchange.everybody()}
        told = set[NodeId]()

        def take(node: NodeId, answer: bytes) -> int:
            told.add(node)
            return 0

        self._exchange.ask("END", END, contents, take, seconds)
        nodes, n_invited = set(self._addresses.node_of.values()), self._addresses.n_invited
        self._is_told = not self._failure or (nodes <= told and len(told) >= n_invited)
        if not self._is_told:
            self._progress.say("not told", nodes=max(len(nodes - told), n_invited - len(told)))

    def _results(self, holds_totals: bool) -> RunResults | None:
        if holds_totals not in self._model:
            return None
        totals = totals_to_bytes(self._totals) if holds_totals else b""
        return RunResults.signed(self._server.identity, self._session, model=self._model[holds_totals], totals=totals)

    def wait_for_nodes(self) -> None:
        """Wait until enough nodes are online. Which they are is looked up again before each sum.

        Raises:
            UnreachableError: none is. Nothing is lost: start the run again once nodes are there.
        """
        needed = self._settings.nodes or len(self._server.roster.clients)
        ends = self._clock() + self._settings.join_seconds
        while len(nodes := self._exchange.online()) < needed and self._clock() < ends:
            self._sleep(1.0)
        self._progress.say("nodes", online=len(nodes), wanted=needed)
        if not nodes:
            raise UnreachableError(f"no node is online after {self._settings.join_seconds:g} seconds; start the nodes")

    def _sum(self, step: Step[Any], *, in_series: bool = True) -> SumResult:
        """The next sum, once its results have space on the disk; an error says who refused and who did not answer."""
        self._reserve.hold(step.layout.size)
        with self._exchange.accounted():
            try:
                if self._series is not None:
                    return self._series.run_next(step.learner, step.model)
                return self._fresh_sum(step, in_series=in_series)
            except SeriesOverError as error:  # too few clients are left to go on with the one before
                self._progress.say("series ends", reason=str(error))
                self._store.drop_sum()
                return self._fresh_sum(step, in_series=in_series)

    def _fresh_sum(self, step: Step[Any], *, in_series: bool) -> SumResult:
        """A sum by itself, or the first of a series; or the one that a process before left."""
        model = model_to_bytes(step.learner, step.model)
        proposal, goes_on = self._proposed(model, in_series=in_series)
        self._session, self._failure, self._is_told = proposal.session, b"", False
        self._exchange.parties = frozenset((*proposal.clients, *proposal.helpers))
        exchange = self._session_exchange(proposal)
        if not proposal.announced:
            proposal = with_announcements(proposal, self._server, exchange, self._deadlines)
        if not goes_on:
            self._store.open_sum(proposal)
            self._addresses = NodeAddresses(n_invited=self._addresses.n_invited)
        self._first = self._first or proposal
        if not proposal.place:
            expected = self._expected
            needed = expected if self._federation.noise is not None else frozenset[PartyId]()
            return run_sum(proposal, self._side(exchange), expected, needed)
        self._series = GridSeries(proposal, self._side(exchange))
        return self._series.resume() if goes_on else self._series.run_first()

    def _session_exchange(self, proposal: TrainingProposal) -> SessionExchange:
        return SessionExchange(proposal.session, self._exchange, self._progress)

    def _side(self, exchange: SessionExchange) -> ServerSide:
        return ServerSide(
            file=self._server,
            exchange=exchange,
            deadlines=self._deadlines,
            store=self._store,
            addresses=self._addresses,
        )

    @property
    def _expected(self) -> frozenset[PartyId]:
        """The clients of the sum before. Which of them an evaluation is of is another question."""
        done = self._federation.sums if self._federation.next_sum is not None else ()
        return frozenset(done[-1].survivors if done else ())

    def _proposed(self, model: bytes, *, in_series: bool) -> tuple[TrainingProposal, bool]:
        """Return the proposal of a sum, and whether a process before closed its first round.

        Raises:
            DeploymentError: the sites hold another model than this process computed from the same totals.
        """
        stored, goes_on = self._store.proposal, self._store.session.load() is not None
        if stored is not None and (goes_on or stored.place < 2):
            if stored.model != model:
                raise DeploymentError(
                    "the model that the sites were sent must come out of the stored totals again, and another one did: "
                    "start the server on the machine, and with the version, that began this run"
                )
            self._progress.say("goes on", sums=len(self._totals), session=stored.session.hex())
            return stored, goes_on
        session = new_session_id() if self._plan is None or self._session else self._plan.session
        proposal = self._settings.proposal(
            self._server.roster, model, session=session, previous=self._session, in_series=in_series
        )
        self._store.open_sum(proposal)
        return proposal, False

    @property
    def _deadlines(self) -> Deadlines:
        settings = self._settings
        return Deadlines(seconds=settings.round_seconds, quorum=settings.quorum, at_once=settings.at_once)

    def _save(self, folder: Path, seconds: float) -> None:
        self._reserve.release()
        learner, model = self._federation.learner, self._federation.model
        self._model = {holds: model_to_bytes(learner, model, with_totals=holds) for holds in (False, True)}
        save_model(folder / "model.safetensors", learner, model)
        assert self._first is not None, "every learner has a sum"
        OutputFile(folder / "invitation").write(self._first.to_bytes())
        OutputFile(folder / "totals.safetensors", private=True).write(totals_to_bytes(self._totals))
        weights = hashlib.sha256(learner.weights_bytes(model)).hexdigest()
        proof = {"certified": not self._federation.uncertified, "uncertified": list(self._federation.uncertified)}
        summary = {
            "started": self._store.began,
            "code": code_version()._asdict(),
            **account_of_run(self._settings, self._server.roster, self._federation),
            "survivors": [list(one.survivors) for one in self._federation.sums],
            "weights_sha256": weights,
            **proof,
            "seconds": round(seconds, 3),
            "plan": None if self._plan is None else self._plan.public,
            "sums": [
                account_of_sum(record, session, result)
                for record, session, result in zip(self._federation.sums, self._sessions, self._totals, strict=True)
            ],
        }
        OutputFile(folder / "summary.json").write(json.dumps(summary, indent=2) + "\n")
        self._progress.say("model", folder=str(folder), weights_sha256=weights, **proof)


def _outcome(error: BaseException) -> Outcome:
    return type(error).__name__, str(error)
