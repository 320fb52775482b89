"""A learner over a mode: the pooled model's bytes, the dialogue of its sums, and honest accounts of who sent what."""

from __future__ import annotations

import hashlib
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.extras import INSTALLED, modes

from analytic.afl import AFL
from analytic.deepafl import DeepAFL
from analytic.errors import InvalidRowsError
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic_secagg.errors import FederationError
from analytic_secagg.federated_model import federate
from analytic_secagg.federation import Federation, Step
from analytic_secagg.in_process import FederatedRun, run_federation
from analytic_secagg.modes import MODES, Mode
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.release import Gate, ReleasePolicy, ReleaseRefusedError
from secagg import InOneProcess, Layout, MaskedSum, SumResult, new_session_id, run_in_memory
from secagg.dp import Budget, BudgetExceededError, Ledger
from secagg.errors import ConfigurationError, SumOutOfBoundsError
from simulations.compare.dropouts import Dropouts

FORMAT = RowFormat.parse("Q3.5")


EITHER = pytest.mark.parametrize("mode", modes(["plain", "masked"]))


WITHOUT_ENCRYPTION = [mode for mode in MODES.values() if not mode.requires]
"""Under encryption the sums of a series are as alone (`test_modes.py`), and DeepAFL's take long."""


def learner(max_rows: int = 60, max_clients: int = 9) -> AFL:
    return AFL(
        n_features=3, n_targets=2, feature_format=FORMAT, max_rows=max_rows, max_clients=max_clients, ri_gamma=2.0
    )


def dealt(n_clients: int, seed: int, n_rows: int = 60) -> dict[int, ClientRows]:
    rng = np.random.default_rng(seed)
    features, labels = rng.uniform(-7, 7, size=(n_rows, 3)), rng.integers(0, 2, n_rows)
    holders = rng.integers(0, n_clients, n_rows)
    return {party + 1: ClientRows(features[holders == party], labels[holders == party]) for party in range(n_clients)}


@given(n_clients=st.integers(2, 9), seed=st.integers(0, 2**32), mode=st.sampled_from(INSTALLED))
@settings(max_examples=20)
def test_a_federation_has_its_survivors_pooled_bytes(n_clients: int, seed: int, mode: Mode) -> None:
    clients = dealt(n_clients, seed)
    room = n_clients - mode.guarantee(tuple(clients)).min_survivors
    rng = np.random.default_rng(seed)
    gone = {
        int(party): int(rng.integers(0, mode.guarantee(tuple(clients)).messages_before_vector + 1))
        for party in rng.permutation(n_clients)[: min(room, n_clients - 2)] + 1
    }
    ticks = []
    federation = run_federation(learner(), clients, mode, dropouts=lambda number: gone, tick=lambda: ticks.append(1))
    survivors = tuple(party for party in clients if party not in gone)
    pooled = fit_pooled(learner(), ClientRows.pool([clients[party] for party in survivors]))
    assert federation.survivors == (survivors,)
    assert learner().weights_bytes(federation.model) == learner().weights_bytes(pooled)
    assert len(ticks) == len(survivors)


def test_costs_are_those_of_the_messages() -> None:
    clients = dealt(4, 0)
    plain, masked = (run_federation(learner(), clients, MODES[name]) for name in ("plain", "masked"))
    vector_bytes = Layout.of(learner().spec.segments).wire_bytes
    for federation, n_messages in ((plain, 1), (masked, 4)):
        assert set(federation.costs) == set(clients)
        assert {cost.messages_up for cost in federation.costs.values()} == {n_messages}
        assert {cost.vector_messages for cost in federation.costs.values()} == {1}
        assert {tuple(cost.messages_by_sum) for cost in federation.costs.values()} == {(n_messages,)}
        assert all(cost.seconds >= cost.statistics_seconds > 0 for cost in federation.costs.values())
        assert federation.server_seconds > 0
    header = plain.costs[1].bytes_up - vector_bytes
    assert 0 < header < 200
    assert plain.costs[1].bytes_down == 0
    assert masked.costs[1].bytes_up > plain.costs[1].bytes_up
    assert masked.costs[1].bytes_down > 0


@given(n_clients=st.integers(3, 9), seed=st.integers(0, 2**32), mode=st.sampled_from(WITHOUT_ENCRYPTION))
@settings(max_examples=10)
def test_a_series_of_sums_has_its_survivors_pooled_bytes(n_clients: int, seed: int, mode: Mode) -> None:
    """Lost clients vanish at any stage of the first sum, and one that stays vanishes after its last vector."""
    clients = dealt(n_clients, seed)
    deep = DeepAFL(n_features=3, n_targets=2, feature_bound=8.0, max_rows=60, n_layers=2, d_phi=6, d_f=5, gamma=0.1)
    dropouts = Dropouts(rate=0.3, seed=seed)
    assume(n_clients - dropouts.n_lost(n_clients) >= mode.guarantee(tuple(clients)).min_survivors)
    federation = run_federation(
        deep,
        clients,
        mode,
        in_series=True,
        dropouts=lambda number: dropouts.draw(mode, tuple(clients), number, in_series=True, last=number == 4),
    )
    survivors = tuple(party for party in clients if party not in dropouts.lost(tuple(clients)))
    pooled = fit_pooled(deep, ClientRows.pool([clients[party] for party in survivors]))
    assert federation.survivors == (survivors,) * 5
    assert deep.weights_bytes(federation.model) == deep.weights_bytes(pooled)
    assert {federation.costs[party].vector_messages for party in survivors} == {5}
    assert len(federation.sums) == 5
    assert federation.largest_layout.wire_bytes == max(one.layout.wire_bytes for one in federation.sums)


@EITHER
def test_a_refused_message_is_never_passed_over(mode: Mode) -> None:
    class TooNarrow(AFL):
        """Promises bounds for one client that its own statistics do not fit."""

        @property
        def spec(self):  # type: ignore[no-untyped-def]
            return Narrow(super().spec)

    class Narrow:
        def __init__(self, spec) -> None:  # type: ignore[no-untyped-def]
            self._spec = spec

        def client_bounds(self, max_rows: int) -> tuple[int, ...]:
            return (1, 1, 1, max_rows)

        def __getattr__(self, name: str) -> object:
            return getattr(self._spec, name)

    narrow = TooNarrow(n_features=3, n_targets=2, feature_format=FORMAT, max_rows=60)
    with pytest.raises((FederationError, ValueError), match="beyond the bound for one client 1;"):
        run_federation(narrow, dealt(4, 0), mode, max_client_rows=60)


def test_a_vector_is_made_in_five_times_its_bytes() -> None:
    """What a site's ``max_entries`` allows a server to ask for in memory; the larger the vector, the nearer to four."""
    learner = AFL(n_features=3000, n_targets=2, feature_format=RowFormat.parse("Q3.8"), max_rows=1000)
    step = Step.of(learner, learner.init())
    assert step is not None
    rows = ClientRows(np.random.default_rng(0).uniform(-1, 1, (50, 3000)), np.zeros(50, dtype=int))
    tracemalloc.start()
    try:
        vector = step.vector(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 3.5 * vector.nbytes < peak < 5.1 * vector.nbytes


AFL_ = AFL(n_features=3, n_targets=2, feature_format=RowFormat.parse("Q3.5"), max_rows=60, max_clients=9, ri_gamma=2.0)
DEEP = DeepAFL(n_features=3, n_targets=2, feature_bound=8.0, max_rows=60, n_layers=1, d_phi=6, d_f=5, gamma=0.1)


def rows(seed: int, n_rows: int = 12) -> ClientRows:
    rng = np.random.default_rng(seed)
    return ClientRows(rng.uniform(-7, 7, size=(n_rows, 3)), rng.integers(0, 2, n_rows))


def result(step: Step[object], *parts: ClientRows) -> SumResult:
    vectors = [step.vector(part) for part in parts]
    return SumResult(total=np.sum(vectors, axis=0), survivors=tuple(range(1, len(parts) + 1)))


def test_each_sum_is_bound_to_all_that_its_clients_hold() -> None:
    federation, parts, contexts = Federation(DEEP, release=None), [rows(seed) for seed in range(3)], []
    while (step := federation.next_sum) is not None:
        assert step.context == hashlib.sha256(DEEP.context_bytes(federation.model)).digest()
        again = Step.of(DEEP, federation.model)
        assert again is not None
        assert (again.context, again.layout) == (step.context, step.layout)
        contexts.append(step.context)
        federation.take(result(step, *parts))
    assert len(set(contexts)) == len(contexts) == 3
    assert [one.context for one in federation.sums] == contexts
    assert DEEP.weights_bytes(federation.model) == DEEP.weights_bytes(fit_pooled(DEEP, ClientRows.pool(parts)))


def test_nothing_is_taken_once_the_model_is_complete() -> None:
    federation = Federation(AFL_, release=None)
    assert federation.next_sum is not None
    total = result(federation.next_sum, rows(0), rows(1))
    federation.take(total)
    assert federation.next_sum is None
    with pytest.raises(FederationError, match="the model is complete and no sum is due"):
        federation.take(total)
    assert len(federation.sums) == 1


def test_a_total_that_the_policy_refuses_changes_nothing_and_a_better_one_is_taken() -> None:
    federation = Federation(AFL_, release=ReleasePolicy(min_survivors=2))
    step = federation.next_sum
    assert step is not None
    with pytest.raises(ReleaseRefusedError, match=r"rank: the total has rank 2 in 3 columns"):
        federation.take(result(step, rows(0, 1), rows(1, 1)))
    assert federation.next_sum is step
    assert federation.sums == ()
    assert federation.model.solution is None
    record = federation.take(result(step, rows(0), rows(1)))
    assert [concern.gate for concern in record.concerns] == [Gate.MEMBERSHIP]
    assert federation.model.weights.tobytes() == fit_pooled(AFL_, ClientRows.pool([rows(0), rows(1)])).weights.tobytes()


@pytest.mark.parametrize(
    ("learner", "privacy"),
    [(DEEP, None), (replace(AFL_, ri_gamma=0.0), PrivacyPlan(epsilon=8.0, min_noise_shares=3, colluders=1))],
    ids=["of other features", "noisy"],
)
def test_a_total_of_too_few_clients_is_refused_where_its_rows_are_not_judged(
    learner: Any, privacy: PrivacyPlan | None
) -> None:
    federation = Federation(learner, release=ReleasePolicy(min_survivors=3), privacy=privacy)
    step = federation.next_sum
    assert step is not None
    with pytest.raises(ReleaseRefusedError, match="survivors: a total needs at least 3 clients and has 2"):
        federation.take(result(step, rows(0), rows(1)))
    assert federation.next_sum is step
    record = federation.take(result(step, rows(0), rows(1), rows(2)))
    assert [concern.gate for concern in record.concerns] == ([] if privacy else [Gate.MEMBERSHIP])


def test_a_total_that_the_learner_refuses_changes_nothing() -> None:
    federation = Federation(AFL_, release=None)
    step = federation.next_sum
    assert step is not None
    with pytest.raises(ValueError, match="has room for 9 clients and 10 took part"):
        federation.take(result(step, *[rows(seed, 1) for seed in range(10)]))
    assert federation.next_sum is step
    assert federation.sums == ()


def test_no_client_brings_more_rows_than_agreed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own side refuses, in every sum of a run; where it lies to itself the total is refused."""
    clients = {party: rows(party) for party in range(1, 4)}
    for learner in (AFL_, DEEP):
        bounded = federate(clients, learner, "masked", max_client_rows=12).model
        assert learner.weights_bytes(bounded) == learner.weights_bytes(federate(clients, learner, "masked").model)
        with pytest.raises(InvalidRowsError, match=r"sites\[1\]: one client may hold 11 rows, and these 12 are more"):
            federate(clients, learner, "masked", max_client_rows=11)
    own = Step.of(AFL_, AFL_.init(), max_client_rows=10**9)
    assert own is not None
    assert own.layout.segments[0].client_bound == own.layout.segments[0].bound
    with pytest.raises(FederationError, match="one row or more"):
        federate(clients, AFL_, "plain", max_client_rows=0)
    monkeypatch.setattr(Layout, "check", lambda self, vector, n_clients: None)
    monkeypatch.setattr(Step, "vector", lambda self, rows: self.spec.to_vector(AFL_.own_statistics(rows)))
    with pytest.raises(SumOutOfBoundsError, match=r"'count': 1 of 1 entries of the total .* 3 clients of at most 11"):
        federate(clients, AFL_, "masked", max_client_rows=11)


def test_clients_of_which_each_may_hold_some_rows_fit_the_sum_together() -> None:
    """A learner with the RI process, whose constant is in every client's bound: a sum of full clients is taken."""
    step = Step.of(AFL_, AFL_.init(), n_clients=5)
    assert step is not None
    counts = [segment.client_bound for segment in step.layout.segments if segment.name == "count"]
    assert counts == [12]  # 60 // 5
    parties = {party: step.vector(rows(party)) for party in range(1, 6)}
    protocol = MaskedSum(layout=step.layout, clients=tuple(parties), session_id=new_session_id(), context=step.context)
    total = run_in_memory(InOneProcess(protocol=protocol), parties).result.total
    assert total.tobytes() == sum(parties.values(), start=0 * total).tobytes()
    with pytest.raises(
        InvalidRowsError, match=r"12 rows, an equal share of the 60 of all 5 clients, and these 13 .* 65"
    ):
        step.vector(rows(0, 13))
    assert Step.of(AFL_, AFL_.init(), n_clients=5, max_client_rows=12) is not None
    with pytest.raises(
        FederationError, match=r"5 clients of 13 rows each need room for 65 .* 60: raise .* lower .* 12"
    ):
        Step.of(AFL_, AFL_.init(), n_clients=5, max_client_rows=13)
    with pytest.raises(FederationError, match="a sum has one client or more, a whole number, not 0"):
        Step.of(AFL_, AFL_.init(), n_clients=0)
    with pytest.raises(FederationError, match=r"61 clients of 1 rows each .* room for 60: raise max_rows$"):
        Step.of(AFL_, AFL_.init(), n_clients=61)


@pytest.mark.parametrize("mode", ["plain", "masked", "committee"])
def test_clients_in_one_process_whose_rows_exceed_the_learner_s_get_no_total(mode: str) -> None:
    """A learner that withholds its row count does not notice: here every sum wraps, to a total within all bounds."""
    linear = AFL(n_features=3, n_targets=2, feature_format=RowFormat.parse("Q3.5"), max_rows=127, ridge=1.0)
    learner = PrivacyPlan(epsilon=8.0, min_noise_shares=3, colluders=1).apply(linear).learner
    with pytest.raises(InvalidRowsError, match=r"sites\[\d\]: with these rows the clients' sum may leave the bound"):
        federate({party: rows(1, 110) for party in range(1, 8)}, learner, mode)
    parts = {1: rows(1, 100), 2: rows(2, 26), 3: rows(3, 1)}  # however uneven
    whole = ClientRows.pool(list(parts.values()))
    evenly = {party: whole.taken(np.arange(127) % 3 == party - 1) for party in parts}
    models = [federate(clients, learner, mode).model for clients in (parts, evenly)]
    assert learner.weights_bytes(models[0]) == learner.weights_bytes(models[1])


def test_a_private_run_charges_its_ledger_before_any_vector_is_made(tmp_path: Path) -> None:
    """The first run spends the budget; the second is refused before a client has computed anything."""
    learner = AFL(n_features=3, n_targets=2, feature_format=RowFormat.parse("UQ1.8"), max_rows=100, ridge=0.01)
    plan = PrivacyPlan(epsilon=2.0, min_noise_shares=3, colluders=1, nonnegative=True)
    budget = Budget(epsilon=2.0, delta=1e-5, unit="record", adjacency="add-remove", population="these rows")
    ledger = Ledger.create(tmp_path / "ledger", budget)
    rng = np.random.default_rng(0)
    clients = {party: ClientRows(rng.random((9, 3)), rng.integers(0, 2, 9)) for party in range(1, 6)}
    ticks: list[int] = []

    def run() -> FederatedRun[Any]:
        return run_federation(
            learner, clients, MODES["masked"], privacy=plan, ledger=ledger, tick=lambda: ticks.append(1)
        )

    finished = run()
    assert (len(finished.sums), len(ledger.releases), len(ticks)) == (2, 2, 10)
    exact = fit_pooled(plan.bounded(learner), ClientRows.pool(list(clients.values())))
    assert finished.model.weights.tobytes() != exact.weights.tobytes()
    with pytest.raises(BudgetExceededError, match="it is not made"):
        run()
    assert (len(ledger.releases), len(ticks)) == (2, 10)


def test_exact_runs_cost_a_ledger_nothing(tmp_path: Path) -> None:
    budget = Budget(epsilon=2.0, delta=1e-5, unit="record", adjacency="add-remove", population="these rows")
    ledger = Ledger.create(tmp_path / "ledger", budget)
    run_federation(AFL_, {party: rows(party) for party in (1, 2)}, MODES["plain"], ledger=ledger)
    assert ledger.releases == ()


@pytest.mark.parametrize("mode", ["plain", "masked", "committee"])
def test_a_sum_that_cannot_keep_the_plan_s_promise_costs_nothing(tmp_path: Path, mode: str) -> None:
    """A mode asks for as many survivors as the noise counts on; of more than there are clients none can be."""
    learner = AFL(n_features=3, n_targets=2, feature_format=RowFormat.parse("UQ1.8"), max_rows=100, ridge=0.01)
    plan = PrivacyPlan(epsilon=2.0, min_noise_shares=6, colluders=1, nonnegative=True)
    budget = Budget(epsilon=2.0, delta=1e-5, unit="record", adjacency="add-remove", population="these rows")
    ledger = Ledger.create(tmp_path / "ledger", budget)
    clients = {party: ClientRows(np.ones((2, 3)), np.array([0, 1])) for party in range(1, 6)}
    with pytest.raises(ConfigurationError, match=r"min_survivors|a total of 5 clients never holds 6"):
        run_federation(learner, clients, MODES[mode], privacy=plan, ledger=ledger)
    assert ledger.releases == ()
    run_federation(learner, clients, MODES[mode], privacy=replace(plan, min_noise_shares=5), ledger=ledger)
    assert len(ledger.releases) == 2
