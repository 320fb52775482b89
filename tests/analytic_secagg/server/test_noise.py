"""Noisy sums over a trial's sites: each site adds its share, demands its least noise, pays from its own ledger."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from support.rehearsed import (
    CLIENTS,
    announced,
    edit,
    edit_all,
    events,
    is_wiped,
    pin_run,
    proposal,
    rehearse,
    run_config,
    site,
    vanishes,
    with_budgets,
)

from analytic.afl import AFL
from analytic.learner import ClientRows
from analytic.model_files import model_to_bytes
from analytic_secagg.__main__ import main
from analytic_secagg.errors import FederationError
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.site.errors import (
    DeclinedError,
    Refusal,
    RunSettingsError,
    SiteFileError,
    UnreachableError,
    WireError,
)
from analytic_secagg.site.messages import CONTEXT, INVITE, STEP, read_proposal, write_proposal
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import OPEN, Trial
from secagg.dp import Ledger, PrivacyError
from secagg.encoding import length_prefixed
from secagg.errors import ConsentRefusedError, SecureSumError

NOISE = {"epsilon": 8.0, "noise-survivors": 3, "noise-colluders": 1}
PLAN = PrivacyPlan(epsilon=8.0, min_noise_shares=3, colluders=1)


def ledger(trial: Trial, party: int) -> Ledger:
    return Ledger.open(trial.folder / f"site-{party}" / "privacy.ledger")


def charged(trial: Trial) -> list[int]:
    """How many sums each site has paid."""
    return [len(ledger(trial, party).releases) for party in trial.rows]


def private(plan: PrivacyPlan = PLAN, **changes: Any) -> TrainingProposal:
    """The proposal of the first sum of AFL's private form."""
    learner = plan.apply(RunSettings.of(template_settings()).build_learner(len(CLIENTS))).learner
    return proposal(learner, **({"privacy": plan} | changes))


@pytest.mark.parametrize("mode", ["masked", "committee", "masked+bfv"])
def test_a_noisy_run_charges_every_site_before_its_vector_leaves(trial: Trial, mode: str) -> None:
    with_budgets(trial)
    paid_when_sent: list[int] = []

    def hear(party: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        if party == 1 and kind != CONTEXT:
            paid_when_sent.append(len(ledger(trial, 1).releases))
        return said

    rehearse(trial.folder, run_config(mode=mode, **NOISE), hear=hear)
    form = PLAN.apply(RunSettings.of(template_settings()).build_learner(len(CLIENTS)))
    assert charged(trial) == [len(form.releases)] * 5 == [2] * 5
    assert [float(one.rho) for one in ledger(trial, 1).releases] == [float(one.rho) for one in form.releases]
    assert paid_when_sent == sorted(paid_when_sent)
    assert (paid_when_sent[0], paid_when_sent[-1]) == (int(mode == "committee"), 2)
    summary = json.loads((trial.folder / "server" / "models" / "rehearsal" / "summary.json").read_text())
    assert summary["privacy"] == PLAN.to_public()
    assert summary["survivors"] == [list(CLIENTS)] * 2
    assert (summary["certified"], summary["uncertified"]) == (False, ["weights by shrunk eigenvalues"])
    assert any(line["event"] == "noise" and "epsilon 8" in line["bill"] for line in events(trial))
    assert is_wiped(trial)


def test_sites_whose_rows_might_let_a_total_wrap_send_and_pay_nothing(trial: Trial) -> None:
    """Private sums withhold the number of rows: nobody would notice afterwards that they are 1437 of 1434."""
    with_budgets(trial)
    with pytest.raises(UnreachableError):
        rehearse(trial.folder, run_config(mode="committee", **NOISE, **{"max-rows": 5 * 287 - 1}))
    assert charged(trial) == [0] * 5
    assert [site(trial, party).count_totals() for party in trial.rows] == [(0, 0)] * 5


def test_a_repeated_session_costs_again_and_then_is_refused(trial: Trial) -> None:
    """Budget for two runs: the third has nobody; a message that is delivered twice is one sum."""
    with_budgets(trial, epsilon=12.5)
    rehearse(trial.folder, run_config(**NOISE), deliveries=2)
    assert charged(trial) == [2] * 5
    rehearse(trial.folder, run_config(**NOISE))
    assert charged(trial) == [4] * 5
    before = [ledger(trial, party).head for party in trial.rows]
    with pytest.raises((SecureSumError, FederationError)):
        rehearse(trial.folder, run_config(**NOISE))
    assert [ledger(trial, party).head for party in trial.rows] == before
    with pytest.raises(DeclinedError, match=r"would bring .* to epsilon .* and the budget is 12.5"):
        site(trial, 1).join(private())


def test_an_aborted_sum_is_paid_by_whoever_sent_its_vector(trial: Trial) -> None:
    """Two sites vanish before they send: they pay nothing; the others' vectors have left, and stay paid."""
    with_budgets(trial)
    gone = [vanishes(party, STEP, number=2) for party in (3, 4, 5)]
    with pytest.raises((SecureSumError, FederationError)):
        rehearse(
            trial.folder,
            run_config(**NOISE),
            is_gone=lambda party, kind: any(is_gone(party, kind) for is_gone in gone),
        )
    assert charged(trial) == [1, 1, 0, 0, 0]


def test_a_sum_that_the_journal_refuses_costs_nothing(trial: Trial) -> None:
    """Where a vector is refused before it leaves, nobody gets its noise, however often a server asks."""
    with_budgets(trial)
    edit(trial, 3, (OPEN, 'configurations = "any"\n'))
    committee = {"mode": "committee", "helpers": (101, 102), "min_survivors": 3}
    site(trial, 3).join(announced(trial, private(**committee)))
    assert charged(trial) == [0, 0, 1, 0, 0]
    again = announced(trial, private(**committee))
    for proposed in (again, again, announced(trial, private(**committee))):
        with pytest.raises(ConsentRefusedError, match="in 1 total already"):
            site(trial, 3).join(proposed)
    assert charged(trial) == [0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (replace(PLAN, epsilon=9.0), "epsilon of at most 8 at delta 1e-05 .* cost .* together"),
        (replace(PLAN, adjacency="replace-one"), "what came is for: record, replace-one"),
        (replace(PLAN, min_noise_shares=None), "takes part in .*masked.noise.* only, not in masked.central-noise"),
        (replace(PLAN, min_noise_shares=4), "counts on 4 survivors and masked releases totals of 3"),
        (None, "takes part in .* only, not in masked"),
    ],
)
def test_a_site_demands_its_least_noise(trial: Trial, plan: PrivacyPlan | None, reason: str) -> None:
    with_budgets(trial)
    base = RunSettings.of(template_settings()).build_learner(len(CLIENTS))
    learner = base if plan is None else plan.apply(base).learner
    with pytest.raises(DeclinedError, match=reason):
        site(trial, 1).join(proposal(learner, privacy=plan))
    assert charged(trial) == [0] * 5


def test_a_site_believes_its_own_price_and_no_other_map(trial: Trial) -> None:
    """A private form of less noise, or none, under the terms of more."""
    with_budgets(trial)
    base: Any = RunSettings.of(template_settings()).build_learner(len(CLIENTS))
    for forged in (replace(PLAN, epsilon=16.0), replace(PLAN, mean_share=0.0), replace(PLAN, fraction_bits=12)):
        learner = forged.apply(base).learner
        with pytest.raises(DeclinedError, match="in another way than the privacy plan"):
            site(trial, 1).join(proposal(learner, privacy=PLAN))
    with pytest.raises(DeclinedError, match="this one has no map"):
        site(trial, 1).join(proposal(base, privacy=PLAN))
    assert site(trial, 1).join(private())


def test_colluders_of_the_site_s_own_count_know_their_shares(trial: Trial) -> None:
    with_budgets(trial)
    edit(trial, 1, ("min_corruption = 0.0", "min_corruption = 0.2"))
    promised = {"corruption": 0.2, "dropout": 0.2}
    with pytest.raises(DeclinedError, match=r"stated for 1 colluding clients, .* sized for 0"):
        site(trial, 1).join(private(replace(PLAN, colluders=0, mean_share=0.0), **promised))
    assert site(trial, 1).join(private(**promised))


def test_a_site_declines_a_delta_that_protects_nobody_where_its_file_says_so(trial: Trial) -> None:
    """With it a tenth of all records may be published as they are."""
    with_budgets(trial)
    large = private(replace(PLAN, epsilon=1.0, delta=0.1))
    assert site(trial, 1).join(large)
    edit(trial, 2, ("run_epsilon = 8.0", "run_epsilon = 8.0\nrefuse_large_delta = true"))
    with pytest.raises(DeclinedError, match=r"the run's delta 0\.1 is too large for \d+ records"):
        site(trial, 2).join(large)
    assert site(trial, 2).join(private())
    form = PLAN.apply(RunSettings.of(template_settings()).build_learner(len(CLIENTS)))
    assert "WARNING" not in form.explain()
    warned = replace(PLAN, delta=0.1).apply(form.learner.unbounded()).explain()
    assert "WARNING: delta 0.1 is too large" in warned


def test_a_site_without_a_budget_takes_no_part_in_noise_and_one_with_it_in_nothing_else(trial: Trial) -> None:
    with pytest.raises(DeclinedError, match=r"not in masked\+noise"):
        site(trial, 1).join(private())
    with_budgets(trial)
    with pytest.raises((SecureSumError, FederationError)):
        rehearse(trial.folder, run_config())
    assert charged(trial) == [0] * 5


def test_two_sites_that_are_told_different_noise_do_not_add_up(trial: Trial) -> None:
    """Both demand no more than their budget: one is told of half the noise, and is left out of the total."""
    with_budgets(trial)
    edit_all(trial, ("run_epsilon = 8.0", "run_epsilon = 20.0"))
    base = RunSettings.of(template_settings()).build_learner(len(CLIENTS))
    other = replace(PLAN, epsilon=16.0)

    def tell(party: int, kind: str, content: bytes) -> bytes:
        if (party, kind) != (5, INVITE):
            return content
        told, asked = read_proposal(content)
        learner = other.apply(base).learner
        model = model_to_bytes(learner, learner.init())
        return write_proposal(replace(told, privacy=other, model=model), asked)

    rehearse(trial.folder, run_config(**NOISE), tell=tell)
    summary = json.loads((trial.folder / "server" / "models" / "rehearsal" / "summary.json").read_text())
    assert summary["survivors"] == [[1, 2, 3, 4]] * 2


def test_a_budget_is_never_changed_under_what_was_spent(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    with_budgets(trial)
    path = trial.folder / "site-1" / "site.toml"
    assert main(["check-site", str(path)]) == 0
    assert "privacy: 0 sums have cost epsilon 0 of 20 at delta 1e-05; head " in capsys.readouterr().out
    assert main(["ledger", str(path)]) == 2
    assert "never overwritten" in capsys.readouterr().err
    edit(trial, 1, ("epsilon = 20.0", "epsilon = 30.0"))
    with pytest.raises(SiteFileError, match="a budget cannot change once it was spent from"):
        site(trial, 1).join(private())
    (trial.folder / "site-2" / "privacy.ledger").unlink()
    with pytest.raises(SecureSumError, match="no release may start without it"):
        site(trial, 2).join(private())


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("epsilon = 20.0", "epsilon = 0.0", "needs epsilon above 0, not 0"),
        ("epsilon = 20.0\n", "", r"\[privacy\] needs epsilon as a number, not nothing"),
        ("run_epsilon", "least_noise", "no place for least_noise"),
        (
            'ledger = "privacy.ledger"',
            'ledger = "privacy.ledger"\nunit = "row"',
            "needs unit to be 'record' or 'client', not 'row'",
        ),
    ],
)
def test_a_site_file_says_what_is_wrong_with_its_budget(trial: Trial, old: str, new: str, reason: str) -> None:
    with_budgets(trial)
    edit(trial, 1, (old, new))
    with pytest.raises(SiteFileError, match=reason):
        SiteFile.read(trial.folder / "site-1" / "site.toml")


@pytest.mark.parametrize("changes", [{"noise-survivors": 0}, {"delta": 2.0}, {"noise-colluders": 3}])
def test_settings_without_noise_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RunSettingsError, match="noise cannot be set up like this"):
        _ = RunSettings.of(template_settings() | NOISE | changes).privacy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target-format": "agreed"}, "set feature-format to agreed or standardised"),
        ({"feature-format": "agreed", "target-format": "Q3.8"}, 'set target-format to "labels" or "agreed"'),
        ({**NOISE, "evaluate": True}, "leave evaluate or epsilon out"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RunSettingsError, match=message):
        RunSettings.of(template_settings() | changes)


def test_terms_carry_the_whole_plan_and_nothing_else() -> None:
    proposed = private()
    assert TrainingProposal.from_bytes(proposed.to_bytes()).privacy == PLAN
    public = PLAN.to_public()
    for wrong in (
        public | {"epsilon": "8"},
        public | {"colluders": True},
        public | {"seed": 1},
        {name: value for name, value in public.items() if name != "delta"},
        public | {"epsilon": -1.0},
    ):
        with pytest.raises(PrivacyError):
            PrivacyPlan.of_public(wrong)
        content = json.loads(proposed.terms) | {"privacy": wrong}
        terms = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        with pytest.raises(WireError, match="these are no terms"):
            TrainingProposal.from_bytes(length_prefixed(terms, b"", proposed.model))


@pytest.mark.parametrize(("times", "is_refused"), [((4, 1), True), ((1, 200), True), ((1, 1), False)])
def test_a_rehearsal_looks_at_every_site_for_rows_beyond_the_bound(
    trial: Trial, times: tuple[int, int], is_refused: bool, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """At one site rows are longer than the clip leaves them; its Gram's trace, or a sum of entries, tells."""
    honest, asked = AFL.client_statistics, []

    def longer(own: AFL, model: Any, rows: ClientRows) -> Any:
        found = honest(own, model, rows)
        asked.append(len(rows))
        if len(rows) != asked[0] or not hasattr(found, "gram"):
            return found
        return replace(found, gram=found.gram * times[0], cross=found.cross * times[1])

    monkeypatch.setattr(AFL, "client_statistics", longer)
    with_budgets(trial)
    with caplog.at_level("WARNING"), suppress(FederationError, SecureSumError):
        rehearse(trial.folder, run_config(**NOISE))
    assert asked
    assert ("these exceed it. Nothing was sent" in caplog.text) is is_refused


@pytest.mark.parametrize(
    ("mode", "kind", "number"), [("masked", INVITE, 2), ("masked", STEP, 6), ("committee", INVITE, 2)]
)
def test_a_site_that_restarts_in_a_later_sum_is_asked_again(trial: Trial, mode: str, kind: str, number: int) -> None:
    """Without it the others refuse, and a run that was paid for ends without a model."""
    settings = {"mode": mode, "min-survivors": 3, **NOISE}
    pin_run(trial, **settings)
    with_budgets(trial)
    seen: Counter[str] = Counter()

    def is_gone(party: int, came: str) -> bool:
        seen[came] += party == 3
        return party == 3 and came == kind and seen[came] in (number, number + 1)

    rehearse(trial.folder, run_config(**settings), is_gone=is_gone)
    assert sum(event["event"] == "node lost" for event in events(trial)) == 2
    assert [event["survivors"] for event in events(trial) if event["event"] == "sum"] == [[1, 2, 3, 4, 5]] * 2
    assert charged(trial) == [2] * 5


@pytest.mark.parametrize("mode", ["masked", "committee", "bfv"])
def test_a_site_that_stays_away_between_two_sums_costs_nobody_the_run(trial: Trial, mode: str) -> None:
    """The others would refuse a total without it, after they paid; so the run waits, and goes on when it is back."""
    settings = {"mode": mode, "min-survivors": 3, **NOISE}
    pin_run(trial, **settings)
    with_budgets(trial)
    with pytest.raises(UnreachableError, match="clients 3 must be in this sum too"):
        rehearse(trial.folder, run_config(**settings), is_gone=vanishes(3, INVITE, 2))
    rows = (trial.site(3) / "rows.npz").rename(trial.folder / "elsewhere.npz")
    with pytest.raises(UnreachableError, match="clients 3 must be in this sum too"):
        rehearse(trial.folder, run_config(**settings))
    rows.rename(trial.site(3) / "rows.npz")
    assert [event["survivors"] for event in events(trial) if event["event"] == "sum"] == [[1, 2, 3, 4, 5]]
    rehearse(trial.folder, run_config(**settings))
    assert [event["survivors"] for event in events(trial) if event["event"] == "sum"] == [[1, 2, 3, 4, 5]] * 2
    assert charged(trial) == [2] * 5
    assert is_wiped(trial)


@pytest.mark.parametrize("certified", [True, False])
def test_what_a_certified_failure_was_charged_is_given_back(trial: Trial, certified: bool) -> None:
    """All sites pay and send their vectors, three of which are lost on the way; without a helper nobody can certify."""
    with_budgets(trial)
    config = run_config(mode="committee", **{"min-survivors": 3}, **NOISE)

    def hear(party: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        paid.append(len(ledger(trial, party).releases))
        return Refusal.DECLINED if party > 2 and kind == INVITE else said

    paid: list[int] = []
    gone: dict[str, Any] = {} if certified else {"is_gone": vanishes(1, STEP)}
    with pytest.raises(SecureSumError):
        rehearse(trial.folder, config, hear=hear, **gone)
    assert max(paid) == 1
    assert [event["certified"] for event in events(trial) if event["event"] == "failure"] == [certified]
    assert charged(trial) == [0 if certified else 1] * 5
    if certified:
        rehearse(trial.folder, config)
        assert charged(trial) == [2] * 5
