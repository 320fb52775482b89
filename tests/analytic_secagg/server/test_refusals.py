"""A run that ends without a total says how many nodes did not answer, and how many refused for which class of reasons.

The classes are a closed list. What may depend on rows is one class, so that none of them tells anything of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.rehearsed import (
    CLIENTS,
    announced,
    by_server,
    edit,
    edit_all,
    events,
    is_wiped,
    proposal,
    rehearse,
    run_config,
    vanishes,
    with_budgets,
    without_client,
)

from analytic.learner import ClientRows
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.site.errors import REASONS, REMEDIES, Refusal, UnreachableError
from analytic_secagg.site.key_files import read_secret
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import INVITE, STEP, write_proposal
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import OPEN, Trial
from secagg import IdentityKey
from secagg.dp import Ledger, Release
from secagg.errors import HelperMissingError, TooFewSurvivorsError

AGAIN = "Start the run again with the same settings once they can be reached: it goes on if it can"

CLOSED = 'configurations = "any"\n'
"""In place of what lets a trial's rows enter any number of totals."""


def refused(count: int, code: Refusal) -> str:
    return f'{count} refused ("{REASONS[code]}": '


def ends(trial: Trial, gone: tuple[int, ...] = (), **settings: object) -> str:
    """The error of a run without a total, which the log of the run repeats."""
    with pytest.raises((TooFewSurvivorsError, HelperMissingError, UnreachableError)) as error:
        rehearse(trial.folder, run_config(**settings), is_gone=lambda party, kind: party in gone)
    (failed,) = [event for event in events(trial) if event["event"] == "failed"]
    assert (failed["kind"], failed["reason"]) == (type(error.value).__name__, str(error.value))
    return str(error.value)


@pytest.mark.parametrize("mode", ["masked", "committee", "bfv"])
def test_who_refuses_by_its_file_is_not_called_unreachable(trial: Trial, mode: str) -> None:
    edit_all(trial, ("min_clients = 5", "min_clients = 9"))
    said = ends(trial, mode=mode)
    if mode == "masked":
        assert "Of 5 nodes 0 did not answer, " in said
        assert refused(5, Refusal.NOT_AGREED) in said
    assert REASONS[Refusal.NOT_AGREED] in said
    assert AGAIN not in said


def test_a_query_log_that_refuses_is_not_called_unreachable(trial: Trial) -> None:
    """All are there, and in a new session all refuse again: as ever after the total that one site is missing from."""
    edit_all(trial, (OPEN, CLOSED))
    rehearse(trial.folder, run_config())
    rows = trial.rows[3]
    trial.give_rows(3, ClientRows(rows.features[1:], rows.targets[1:]))  # it refuses, and then the others do
    said = ends(trial)
    assert "Of 5 nodes 0 did not answer, " in said
    assert refused(5, Refusal.DECLINED) in said
    assert AGAIN not in said
    assert said == ends(trial), "a new session ends alike"


def test_who_is_away_and_who_refuses_are_told_apart(trial: Trial) -> None:
    edit(trial, 2, ("min_clients = 5", "min_clients = 9"))
    (trial.site(4) / "rows.npz").unlink()
    said = ends(trial, gone=(1,))
    assert "Of 5 nodes 1 did not answer, " in said
    assert refused(1, Refusal.NOT_AGREED) in said
    assert refused(1, Refusal.FAILED) in said
    assert said.endswith(AGAIN)


def test_helpers_that_decline_are_not_called_unreachable(trial: Trial) -> None:
    """The owners of three sites allow a second total; to the helpers' query logs it leaves two clients in between."""
    edit_all(trial, (OPEN, CLOSED))
    rehearse(trial.folder, run_config(mode="committee"))
    without_client(trial, 1)
    rows = trial.rows[2]
    trial.give_rows(2, ClientRows(rows.features[::-1] * 0.5, rows.targets[::-1]))
    for party in (3, 4, 5):
        edit(trial, party, (CLOSED, f"{CLOSED}[journal]\nfurther_totals = 1\n"))
    said = ends(trial, mode="committee")
    assert said.startswith("2 helpers must answer, and 101, 102 did not; no total is released. Of 5 nodes 0 did not")
    assert refused(2, Refusal.DECLINED) in said
    assert AGAIN not in said
    assert "Reach them" not in said


@pytest.mark.parametrize("key", ["identity.key", "helper.key"])
def test_a_helper_whose_key_was_replaced_ends_the_run(trial: Trial, key: str) -> None:
    """What was stored under the old one opens never again, so nobody waits for it, and the sites hear of the end."""
    path, roster = trial.site(1) / key, trial.site(1) / "roster.toml"
    new = IdentityKey.generate()

    def tell(party: int, kind: str, content: bytes) -> bytes:
        if (party, kind) == (1, STEP) and (old := IdentityKey(read_secret(path)).public) != new.public:
            path.write_text(new.secret.hex())
            roster.write_text(roster.read_text().replace(old.hex(), new.public.hex()))
        return content

    with pytest.raises(HelperMissingError) as error:
        rehearse(trial.folder, run_config(mode="committee"), tell=tell)
    assert refused(1, Refusal.NO_SESSION) in str(error.value)
    assert AGAIN not in str(error.value)
    assert not any(event["event"] == "may go on" for event in events(trial))
    assert is_wiped(trial)


def test_a_run_waits_only_where_enough_may_come_back(trial: Trial) -> None:
    """Every helper must answer; one refuses for good, and that the other is away is no hope."""

    def hear(party: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        return Refusal.NO_SESSION if (party, kind) == (1, STEP) else said

    with pytest.raises(HelperMissingError) as error:
        rehearse(trial.folder, run_config(mode="committee"), hear=hear, is_gone=vanishes(2, STEP))
    assert AGAIN not in str(error.value)
    assert not any(event["event"] == "may go on" for event in events(trial))


def test_a_run_that_no_budget_pays_says_so(trial: Trial) -> None:
    with_budgets(trial, epsilon=8.0)
    noise = {"epsilon": 8.0, "noise-survivors": 3, "noise-colluders": 1}
    rehearse(trial.folder, run_config(**noise))
    said = ends(trial, **noise)
    assert refused(5, Refusal.NO_BUDGET) in said
    assert AGAIN not in said


def test_every_class_has_a_text_and_a_remedy() -> None:
    assert REASONS.keys() == REMEDIES.keys() == set(Refusal)
    assert len(set(REASONS.values())) == len(Refusal)


# --- what a class tells of rows -----------------------------------------------------------------------------


SITE = 3
"""A client and nothing else, so that it does not answer for a helper. In a committee its rows are read at once."""


def asked(trial: Trial, learner: Any = None, **changes: Any) -> TrainingProposal:
    values = {"mode": "committee", "helpers": (101, 102), "min_survivors": 3} | changes
    return announced(trial, proposal(learner, **values))


def answer(trial: Trial, proposed: TrainingProposal) -> Refusal:
    content = by_server(trial, INVITE, write_proposal(proposed))
    said = handle_message(partial(SiteFile.read, trial.site(SITE) / "site.toml"), INVITE, partial(bytes, content))
    assert isinstance(said, Refusal)
    return said


def too_large(trial: Trial) -> TrainingProposal:
    """Its rows do not fit the server's format."""
    rows = trial.rows[SITE]
    trial.give_rows(SITE, ClientRows(rows.features * 1000, rows.targets))
    return asked(trial)


def of_another_class(trial: Trial) -> TrainingProposal:
    rows = trial.rows[SITE]
    trial.give_rows(SITE, ClientRows(rows.features, np.full_like(rows.targets, 99)))
    return asked(trial)


def changed_in_part(trial: Trial) -> TrainingProposal:
    """Some of its rows are in a total already: the query log refuses."""
    edit(trial, SITE, (OPEN, CLOSED))
    rehearse(trial.folder, run_config(mode="committee"))
    rows = trial.rows[SITE]
    trial.give_rows(SITE, ClientRows(rows.features[1:], rows.targets[1:]))
    return asked(trial)


@pytest.mark.parametrize("cause", [too_large, of_another_class, changed_in_part])
def test_whatever_depends_on_rows_is_one_class(trial: Trial, cause: Callable[[Trial], TrainingProposal]) -> None:
    """Else a server that proposes a format, or the same sum again, would be told which of these it is."""
    assert answer(trial, cause(trial)) is Refusal.DECLINED


def test_a_ledger_that_refuses_after_the_rows_were_read_is_of_that_class(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own class would tell that the query log let the rows pass and that they fit."""
    with_budgets(trial, epsilon=8.0)
    plan = PrivacyPlan(epsilon=8.0, min_noise_shares=3, colluders=1)
    learner = plan.apply(RunSettings.of(template_settings()).build_learner(len(CLIENTS))).learner
    spend, ledger = Ledger.check, Ledger.open(trial.site(SITE) / "privacy.ledger")

    def spent_meanwhile(self: Ledger, releases: tuple[Release, ...]) -> object:
        found = spend(self, releases)
        for number, release in enumerate(releases):  # another process of this site was faster
            ledger.charge(release, session_id=bytes([number]) * 16)
        return found

    monkeypatch.setattr(Ledger, "check", spent_meanwhile)
    assert answer(trial, asked(trial, learner, privacy=plan)) is Refusal.DECLINED


@pytest.mark.parametrize("refusal", [Refusal.NOT_AGREED, Refusal.NO_BUDGET])
def test_what_has_a_class_of_its_own_is_decided_before_any_row_is_read(trial: Trial, refusal: Refusal) -> None:
    """The same answer comes where there are no rows at all."""
    plan = PrivacyPlan(epsilon=8.0, min_noise_shares=3, colluders=1)
    learner = plan.apply(RunSettings.of(template_settings()).build_learner(len(CLIENTS))).learner
    with_budgets(trial, epsilon=8.0)
    if refusal is Refusal.NOT_AGREED:
        edit(trial, SITE, ("min_clients = 5", "min_clients = 9"))
    else:
        noise = {"epsilon": 8.0, "noise-survivors": 3, "noise-colluders": 1}
        rehearse(trial.folder, run_config(mode="committee", **noise))
    proposed = asked(trial, learner, privacy=plan)
    assert answer(trial, proposed) is refusal
    (trial.site(SITE) / "rows.npz").unlink()
    assert answer(trial, proposed) is refusal
