"""Attacks on what owners agree to have computed: by series, models, bins and refusals of the server's choice."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.composed import choosing
from support.crashes import KilledError
from support.lying_server import LyingServer
from support.rehearsed import CLIENTS, Rehearsal, database, edit_all, pin, proposal, rehearse, run_config, site

from analytic import AFL, ClientRows, ColumnMap, RowFormat
from analytic.evaluation import ClassEvaluation, LabelsEvaluation
from analytic.fedhip import FedHiP
from analytic.learner import fit_pooled
from analytic.model_files import FILE
from analytic.solve import Solution
from analytic_secagg.configurations import configuration_digest
from analytic_secagg.server.exchange import Deadlines, Exchange, SessionExchange
from analytic_secagg.server.grid_series import GridSeries
from analytic_secagg.server.grid_sum import ServerSide
from analytic_secagg.server.progress_log import ProgressLog
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.server.run_store import NodeAddresses, RunStore
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.trial import Trial
from secagg.encoding import length_prefixed
from secagg.errors import SecureSumError

DEEP = {"learner": "deepafl", "options": "n_layers=1 d_phi=16 d_f=8"}


def learner_of(**settings: Any) -> Any:
    return RunSettings.of(run_config(**settings)).build_learner(len(CLIENTS))


def count(trial: Trial, party: int, what: str) -> Any:
    with database(trial, party) as file:
        return file.execute(f"SELECT {what}").fetchone()[0]


def test_a_series_is_of_one_configuration(trial: Trial) -> None:
    """``_run_of`` falls back to the session, which the sums of a series share, whatever they compute."""
    one, two = learner_of(**{"feature-format": "UQ5.9"}), learner_of(**{"feature-format": "UQ5.11"})
    pin(trial, one, two)
    server = ServerFile.read(trial.folder / "server" / "server.toml")
    files = {int(path.parent.name[5:]): path for path in sorted(trial.folder.glob("site-*/site.toml"))}
    rehearsal = Rehearsal(files, identity=server.identity)
    progress = ProgressLog(trial.folder / "progress.jsonl")
    exchange = Exchange(rehearsal, progress, identity=server.identity, clock=rehearsal.clock, sleep=rehearsal.sleep)
    first = proposal(one, place=1)
    by_session = SessionExchange(first.session, exchange, progress)
    with RunStore.opened(trial.folder / "run") as store:
        side = ServerSide(
            file=server,
            exchange=by_session,
            deadlines=Deadlines(seconds=60.0),
            store=store,
            addresses=NodeAddresses(),
        )
        series = GridSeries(first, side)
        assert series.run_first().survivors == CLIENTS
        with pytest.raises(SecureSumError):
            series.run_next(two, two.init())


def test_what_fitted_once_is_no_further_try(trial: Trial) -> None:
    """Three models of the server's choice that do not fit, and a site repeats not even an honest run."""
    afl, deep = learner_of(), learner_of(**DEEP)
    pin(trial, afl, deep, more='unverified_models = ["deepafl"]')
    LyingServer(trial).total(proposal(afl))
    for number in range(3):
        bounds = replace(deep.init().bounds, features=np.full(deep.d_phi, 2.0 ** -(number + 12)))
        with pytest.raises(SecureSumError):
            LyingServer(trial).total(proposal(deep, replace(deep.init(), bounds=bounds)))
    LyingServer(trial).total(proposal(afl))


def test_rows_that_were_put_right_are_tried(trial: Trial) -> None:
    """One agreed configuration, three wrong versions of the rows: these are other rows, and each has its own tries."""
    pin(trial, learner := learner_of())
    right = trial.rows[1]
    for number in range(1, 4):
        trial.give_rows(1, ClientRows(right.features + 100.0 * number, right.targets))
        LyingServer(trial).total(proposal(learner))
    trial.give_rows(1, right)
    server = LyingServer(trial)
    with suppress(SecureSumError):
        server.total(proposal(learner))  # the others refuse: their totals lack one client
    assert 1 not in server.refused


def test_three_dead_processes_end_no_site(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts that were switched off over computations that would have fitted."""
    learners = [learner_of(ridge=float(number)) for number in range(1, 5)]
    pin(trial, *learners)
    edit_all(trial, ("modes = [", 'modes = ["plain", '))

    def dies(self: AFL, model: object, rows: ClientRows) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(AFL, "client_statistics", dies)
        for learner in learners[:3]:
            with pytest.raises(KilledError):
                site(trial, 1).join(proposal(learner, mode="plain", dropout=0.0, min_survivors=3))
    site(trial, 1).join(proposal(learners[3], mode="plain", dropout=0.0, min_survivors=3))


def test_no_tries_means_no_refusal_and_not_no_sum(trial: Trial) -> None:
    """refused_tries = 0 lets no computation come to nothing before another one; the first is not another one."""
    pin(trial, learner := learner_of())
    edit_all(trial, ("\n[policy]", "\n[journal]\nrefused_tries = 0\n\n[policy]"))
    LyingServer(trial).total(proposal(learner))


def test_one_refusal_reads_no_value(trial: Trial) -> None:
    """Models of the server's choice are refused before they are tried: a scan of them read a site's largest entry."""
    pin(trial, deep := learner_of(**DEEP), more='unverified_models = ["deepafl"]')
    rehearse(trial.folder, run_config(**DEEP))

    def weighed(scale: float) -> Any:
        weights = np.zeros((deep.d_phi, deep.n_targets))
        weights[3, 0] = scale
        known = Solution(weights=weights, method="cholesky", rank=1, reciprocal_condition=1.0, certified=True)
        bounds = replace(deep.init().bounds, hidden=(64.0,), residuals=4.0)
        return replace(deep.init(), classifiers=(known,), bounds=bounds)

    before = count(trial, 1, "count(*) FROM computations")
    for place in range(30):
        server = LyingServer(trial)
        with suppress(SecureSumError):
            server.total(proposal(deep, weighed(1.1**place)))
        assert "computes something else" in server.refused[1]
    assert count(trial, 1, "count(*) FROM computations") == before


def test_a_client_that_is_not_asked_has_its_vector_counted(trial: Trial) -> None:
    """Where other sites' rows are all new: site 5 is asked for a vector and not for its consent."""
    one, two = learner_of(), learner_of(**{"feature-format": "UQ5.9"})
    pin(trial, one, two)
    assert LyingServer(trial).total(proposal(one), unasked=(5,)).survivors == CLIENTS
    assert count(trial, 5, "count(*) FROM totals") == 0
    for party in (1, 2, 3, 4):
        rows = trial.rows[party]
        trial.give_rows(party, ClientRows(rows.features[:, ::-1] + 1 / 64, rows.targets))
    server = LyingServer(trial)
    with suppress(SecureSumError):
        server.total(proposal(two))
    assert 5 in server.refused


def changed(proposed: TrainingProposal, **configuration: Any) -> TrainingProposal:
    arrays, said = FILE.from_bytes(proposed.model, "a model")
    said["configuration"] |= configuration
    return replace(proposed, model=FILE.to_bytes(arrays, said))


def raises_what_is_documented(trial: Trial, proposed: TrainingProposal) -> None:
    with pytest.raises((SecureSumError, DeploymentError)):
        LyingServer(trial).total(proposed) if proposed.place == 0 else site(trial, 1).join(proposed)


def test_a_float_for_an_intercept_is_no_crash(trial: Trial) -> None:
    """The same digest as the pinned one (0.0 is written as 0): a TypeError over the rows, before the try."""
    columns = ColumnMap(exponents=(0,) * 64, intercept=0)
    sizes: dict[str, Any] = {"n_features": 64, "n_targets": 10, "max_rows": 5000, "max_clients": 5}
    pin(trial, learner := AFL(feature_format=RowFormat.parse("UQ5.11"), columns=columns, **sizes))
    as_float = {"column_map": {"exponents": [0] * 64, "target_exponents": [], "intercept": 0.0}}
    raises_what_is_documented(trial, changed(proposal(learner), columns=as_float))


@pytest.mark.parametrize("n_features", [64.5, True])
def test_no_whole_number_is_no_crash(trial: Trial, n_features: Any) -> None:
    """AttributeError and TypeError out of ``configuration_digest``, since DeepAFL settles no whole numbers."""
    pin(trial, learner := learner_of(**DEEP))
    with pytest.raises((SecureSumError, DeploymentError)):
        site(trial, 1).join(changed(proposal(learner), n_features=n_features))


@pytest.mark.parametrize("place", [-1, 2**70])
def test_no_place_is_no_crash(trial: Trial, place: int) -> None:
    """OverflowError out of ``MaskedSeries.sum``."""
    pin(trial, learner := learner_of())
    good = proposal(learner)
    terms = good.terms.replace(b'"place":0', b'"place":%d' % place)
    assert terms != good.terms
    with pytest.raises((SecureSumError, DeploymentError)):
        site(trial, 1).join(TrainingProposal.from_bytes(length_prefixed(terms, b"", good.model)))
    assert site(trial, 1).join(TrainingProposal.from_bytes(good.to_bytes()))


SMALL: dict[str, Any] = {"n_features": 4, "n_targets": 2, "feature_format": RowFormat.parse("Q4.11"), "max_rows": 50}


def test_two_learners_have_two_digests() -> None:
    """``learner`` is a field of learners around others, and takes the place of the name in the first line."""
    one, two = choosing(AFL(**SMALL)), choosing(FedHiP(**SMALL))
    assert one.name != two.name
    assert configuration_digest(one) != configuration_digest(two)


def test_two_evaluations_have_two_digests() -> None:
    learner = AFL(**SMALL, ridge=1.0)
    model = fit_pooled(learner, ClientRows(np.ones((3, 4)), np.array([0, 1, 1])))
    kinds = (
        kind(learner=learner, model=model, max_rows=10, n_classes=2) for kind in (ClassEvaluation, LabelsEvaluation)
    )
    assert len(set(map(configuration_digest, kinds))) == 2


def test_an_evaluation_is_of_agreed_bins(trial: Trial) -> None:
    """With bins of the server's choice one masked total is three columns of every row."""
    pin(trial, learner := learner_of())
    names = 'learners = ["afl", "evaluation-of-classes"]\nunverified_models = ["evaluation-of-classes"]'
    edit_all(trial, ('learners = ["afl"]', names))
    weights = np.zeros((64, 10))
    weights[[10, 20, 30], 0] = 1, 17, 17**2
    model = fit_pooled(learner, ClientRows(np.eye(64), np.arange(64) % 10))
    model = replace(model, solution=replace(model.solution, weights=weights))
    ranges = {"n_classes": 10, "n_bins": 17**3, "low": -0.5, "high": 17**3 - 0.5}
    evaluation = ClassEvaluation(learner=learner, model=model, max_rows=10**5, **ranges)  # type: ignore[arg-type]
    server = LyingServer(trial)
    with pytest.raises(SecureSumError):
        server.total(proposal(evaluation))
    assert all("the server proposes another one" in said for said in server.refused.values())
    pin(trial, learner, evaluation)  # owners who agree to such bins give their rows away
    total = evaluation.spec.from_vector(LyingServer(trial).total(proposal(evaluation)).total)
    counts = total["own"][0] + total["others"][0]
    read = sorted((k % 17, k // 17 % 17, k // 289) for k in np.flatnonzero(counts).tolist() for _ in range(counts[k]))
    rows = np.concatenate([trial.test_rows[party].features for party in CLIENTS])[:, [10, 20, 30]]
    assert read == sorted(map(tuple, rows.astype(int).tolist()))


def test_a_copy_of_the_state_taken_while_a_vector_is_made_is_behind(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nightly copy, made while this site's rows are added up, knows of no vector, and comes back later."""
    one, two = learner_of(), learner_of(**{"feature-format": "UQ5.9"})
    pin(trial, one, two)
    state, copy, made = trial.site(5) / "state", trial.folder / "copy", AFL.client_statistics

    def copied(self: AFL, model: Any, rows: ClientRows) -> Any:
        if np.array_equal(rows.features, trial.rows[5].features):
            shutil.copytree(state, copy)
        return made(self, model, rows)

    with monkeypatch.context() as patch:
        patch.setattr(AFL, "client_statistics", copied)
        assert LyingServer(trial).total(proposal(one), unasked=(5,)).survivors == CLIENTS
    shutil.rmtree(state)
    copy.rename(state)
    for party in (1, 2, 3, 4):
        rows = trial.rows[party]
        trial.give_rows(party, ClientRows(rows.features[:, ::-1] + 1 / 64, rows.targets))
    server = LyingServer(trial)
    with suppress(SecureSumError, DeploymentError):
        server.total(proposal(two))
    assert "the query log must have the" in server.refused[5]
