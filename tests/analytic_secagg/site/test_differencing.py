"""Two totals that differ by one client: a server that lies about who is lost, against real sites."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import rehearsed
from support.crashes import KilledError
from support.lying_server import AT_SITE, LyingServer
from support.pairs import covering, some_of
from support.rehearsed import CLIENTS, Hear, announced, database, events, is_exact, rehearse, run_config, site, vanishes

from analytic import RowFormat
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows
from analytic.statistics import IntVector
from analytic_secagg.modes import MODES
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.server.run_store import StoppedRunError
from analytic_secagg.site.errors import DeploymentError, Refusal
from analytic_secagg.site.messages import END, INVITE, STEP, read_end, read_messages, write_messages
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.site import Site
from analytic_secagg.site.store import SessionStore
from analytic_secagg.trial import FIRST_HELPER, KEY_HOLDER_PARTY, OPEN, Trial
from secagg import PartyId
from secagg.errors import ConsentRefusedError, RemoteProtocolError, SecureSumError

VICTIM = 5
HELPERS = {"masked": (), "committee": (FIRST_HELPER, FIRST_HELPER + 1), "bfv": (KEY_HOLDER_PARTY,)}

LEARNER: Any = RunSettings.of(template_settings()).build_learner(len(CLIENTS))
COARSER = replace(LEARNER, feature_format=RowFormat.parse("UQ5.3"), ridge=1.0)
OTHER = FedHiP(
    n_features=LEARNER.n_features,
    n_targets=LEARNER.n_targets,
    feature_format=RowFormat.parse("UQ5.4"),
    max_rows=LEARNER.max_rows,
)


@pytest.fixture
def trial(trial: Trial) -> Trial:
    """Sites whose files say as little as they may: no journal, no policy; the server's lies are about five clients."""
    for party in trial.rows:
        path = trial.folder / f"site-{party}" / "site.toml"
        closed = path.read_text().replace(OPEN, 'configurations = "any"\n')
        bare = re.sub(r"\[policy\].*?\n(?=\n|\[|$)", "", closed, flags=re.DOTALL)
        path.write_text(bare)
    return trial


def proposal(mode: str = "masked", *, learner: Any = LEARNER, **changes: Any) -> TrainingProposal:
    values: dict[str, Any] = {"mode": mode, "helpers": HELPERS[mode], "dropout": 0.0}
    promised = {"corruption": 0.2, "dropout": 0.2} if mode == "masked" else {"min_survivors": 3}
    return rehearsed.proposal(learner, **(values | promised | changes))


def gram(learner: Any, vector: IntVector) -> np.ndarray[Any, Any]:
    """The Gram matrix in whole units of the features, which digits are: each format's fraction bits taken off."""
    scale = 4 ** int(learner.feature_format.fraction_bits)
    units = learner.spec.from_vector(vector).gram
    assert not (units % scale).any()
    return np.asarray(units // scale)


def allow(trial: Trial, mode: str, further_totals: int = 0) -> None:
    """Every site's policy accepts a mode and its learners; its owner allows so many further totals."""
    for party in trial.rows:
        path = trial.folder / f"site-{party}" / "site.toml"
        text = path.read_text().replace('learners = ["afl"]', 'learners = ["afl", "fedhip", "deepafl"]')
        allowed = f"\n[journal]\nfurther_totals = {further_totals}\n" if further_totals else ""
        path.write_text(f'{text}\n[policy]\nmodes = ["{mode}"]\n{allowed}')


def wins(trial: Trial, server: LyingServer, mode: str, second: Any, *, first_is_larger: bool = True) -> bool:
    """Whether two totals are released; then their difference is all of the victim's Gram matrix."""
    lost = [(), (VICTIM,)] if first_is_larger else [(VICTIM,), ()]
    first = server.total(proposal(mode), lost=lost[0])
    try:
        total = server.total(proposal(mode, learner=second), lost=lost[1])
    except SecureSumError:
        return False
    difference = gram(LEARNER, first.total) - gram(second, total.total)
    rows = trial.rows[VICTIM].features.astype(np.int64)
    np.testing.assert_array_equal(difference if first_is_larger else -difference, rows.T @ rows)
    return True


WAYS = {
    "the same": ("masked", LEARNER),
    "another format": ("masked", COARSER),
    "another learner": ("masked", OTHER),
    "committee": ("committee", LEARNER),
    "bfv, another format": ("bfv", COARSER),
}


def chosen(way: str) -> tuple[str, Any]:
    """The mode and the second sum's learner."""
    mode, second = WAYS[way]
    if extra := MODES[mode].missing_extra:
        pytest.skip(f"needs the extra: {extra}")
    return mode, second


@pytest.mark.parametrize(("way", "first_is_larger"), covering(list(WAYS), [True, False]))
def test_no_second_total_gives_a_client_away(trial: Trial, way: str, first_is_larger: bool) -> None:
    """Nobody colludes, and no site's file says a word of a journal."""
    mode, second = chosen(way)
    allow(trial, mode)
    server = LyingServer(trial)
    assert not wins(trial, server, mode, second, first_is_larger=first_is_larger)
    assert server.refused.keys() >= {1, 2, 3, 4} - {AT_SITE[helper] for helper in HELPERS[mode]}
    for said in server.refused.values():
        assert (
            "another" in way and mode == "masked"
        ) or "are in 1 total already, and another total could differ from" in said
        assert (
            "computes something else" in said
            if "another" in way and mode == "masked"
            else ("these leave 1." if mode == "masked" else "is not shown who survives") in said
        )
        assert "raise further_totals under [journal] (0 of 0 are used)" in said


def test_a_site_whose_rows_are_refused_still_helps(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    """Its client says nothing, and why stands in its own log; its helper is there, and asks a journal of its own."""
    allow(trial, "committee")
    LyingServer(trial).total(proposal("committee"))
    assert site(trial, 1).join(announced(trial, proposal("committee"))).keys() == {FIRST_HELPER}
    assert "party 1 takes no part: these rows, or some of them, are in 1 total already" in caplog.text
    with pytest.raises(ConsentRefusedError):
        site(trial, 3).join(announced(trial, proposal("committee")))


@pytest.mark.parametrize("unasked", some_of([party for party in CLIENTS if party != VICTIM], [2]))
def test_it_does_not_help_to_ask_others_the_second_time(trial: Trial, unasked: PartyId) -> None:
    """A quorum signs the first survivors; who was not asked would sign the second's, and is one too few."""
    allow(trial, "masked")
    server = LyingServer(trial)
    assert server.total(proposal(), unasked=[unasked]).survivors == CLIENTS
    with pytest.raises(SecureSumError):
        server.total(proposal(), lost=[VICTIM])
    assert server.refused.keys() == set(CLIENTS) - {VICTIM, unasked}


def test_a_row_that_one_site_adds_is_not_the_difference_of_two_totals(trial: Trial) -> None:
    """The others' rows and the survivors stay the same, so nothing but that site's own word protects its new row."""
    allow(trial, "masked")
    server, before, new = LyingServer(trial), trial.rows[VICTIM], trial.test_rows[VICTIM].taken(np.array([0]))
    first = server.total(proposal())
    features, targets = np.vstack([before.features, new.features]), np.append(before.targets, new.targets)
    trial.give_rows(VICTIM, ClientRows(features, targets))
    with pytest.raises(SecureSumError):
        assert gram(LEARNER, server.total(proposal()).total - first.total).any()  # the outer product of the new row
    assert "the roster changed" in server.refused.pop(VICTIM)
    assert server.refused.keys() == set(CLIENTS) - {VICTIM}
    assert all("these leave 1." in said for said in server.refused.values())


def test_a_sum_that_fails_before_its_survivors_are_signed_costs_nothing(trial: Trial) -> None:
    """All vectors had left. One that fails later may be run again over the same survivors."""
    allow(trial, "masked")
    server = LyingServer(trial)
    with pytest.raises(SecureSumError):
        server.total(proposal(), unasked=CLIENTS)
    with pytest.raises(SecureSumError):
        server.total(proposal(), lost=[VICTIM], unasked=[1])
    with pytest.raises(SecureSumError):
        server.total(proposal(learner=COARSER), lost=[VICTIM])
    again = server.total(proposal(), lost=[VICTIM])
    assert again.survivors == (1, 2, 3, 4)
    with pytest.raises(SecureSumError):
        server.total(proposal())


def lost_on_the_way(*parties: PartyId) -> Hear:
    """A network that loses what these say first, once they have said it."""

    def hear(party: int, kind: str, content: bytes, answer: bytes | Refusal) -> bytes | Refusal:
        if kind != INVITE or isinstance(answer, Refusal):
            return answer
        session, said = read_messages(answer)
        return write_messages({party: first for party, first in said.items() if party not in parties}, session=session)

    return hear


@pytest.mark.parametrize(("certified", "receipts"), [(True, "none"), (True, "helpers"), (False, "none")])
def test_a_run_of_a_committee_that_fails_may_be_run_again_if_its_helpers_say_so(
    trial: Trial, certified: bool, receipts: str
) -> None:
    """All sites had sent their vectors; where a helper is gone, too, it is asked when the run is started again."""
    allow(trial, "committee")
    config = run_config(mode="committee", receipts=receipts, **{"min-survivors": 3})
    gone = {} if certified else {"is_gone": vanishes(1, STEP)}
    with pytest.raises(SecureSumError):
        rehearse(trial.folder, config, hear=lost_on_the_way(3, 4, 5), **gone)
    assert [event["certified"] for event in events(trial) if event["event"] == "failure"] == [certified]
    if not certified:
        assert [site(trial, party).count_totals() for party in (3, 4, 5)] == [(1, 0)] * 3
        with pytest.raises(StoppedRunError):
            rehearse(trial.folder, config)
        assert [site(trial, party).count_totals() for party in (3, 4, 5)] == [(0, 0)] * 3
    rehearse(trial.folder, config)
    is_exact(trial, list(CLIENTS))
    assert [site(trial, party).count_totals() for party in (3, 4, 5)] == [(1, 0)] * 3


def test_a_site_counts_a_sum_until_helpers_sign_that_this_very_one_failed(trial: Trial) -> None:
    """Whoever says that a run is over, and with what: sites 1 and 2 get the proof, the others something else."""
    allow(trial, "committee")
    config, proofs = run_config(mode="committee"), list[tuple[bytes, bytes]]()

    def tell(party: int, kind: str, content: bytes) -> bytes:
        if kind != END:
            return content
        session, _, proof = read_end(content)
        proofs.append((session, proof))
        return b"lost on the way"

    models = trial.folder / "server" / "models"
    for run in ("first", "second"):  # in the second no client says anything, and helpers do
        with pytest.raises(SecureSumError):
            rehearse(trial.folder, config, tell=tell, hear=lost_on_the_way(*CLIENTS))
        (models / "rehearsal").rename(models / run)
    (session, proof), (_, other) = proofs[0], proofs[-1]
    assert proof != other
    ends = {1: proof, 2: proof, 3: other, 4: proof[:8] + proof[8 : 8 + 68], 5: b""}
    for party, said in ends.items():
        with suppress(RemoteProtocolError):
            site(trial, party).end(session, None, said)
        site(trial, party).end(session, None, proof)  # too late for who was told something else first
    assert [site(trial, party).count_totals() for party in CLIENTS] == [(0, 0), (0, 0), (1, 0), (1, 0), (1, 0)]


def test_a_site_s_upload_tells_helpers_what_its_rows_are_known_by(trial: Trial) -> None:
    allow(trial, "committee")
    LyingServer(trial).total(proposal("committee"))
    with database(trial, 1) as opened:
        ((vectors,),) = opened.execute("SELECT survivors FROM totals WHERE subject = ?", [b"helped"])
    assert len({vectors[place + 16 : place + 32] for place in range(0, len(vectors), 32)}) == len(CLIENTS)


@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_an_entry_is_on_the_disk_before_what_it_allows_is_said(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Site 1 is killed before each of its writes in turn and asked again: no word of its leaves without the entry."""
    allow(trial, mode)
    run, writes_left, said = SessionStore.run, [10**6], list[tuple[PartyId, int]]()

    def killed(folder: SessionStore, statement: str, *values: object) -> list[Any]:
        if folder.path.parent.name == "site-1" and not statement.startswith("SELECT"):
            writes_left[0] -= 1
            if writes_left[0] < 0:
                raise KilledError
        return run(folder, statement, *values)

    class Patient(LyingServer):
        def _ask(self, number: int, ask: Callable[[Site], Mapping[PartyId, bytes]]) -> Mapping[PartyId, bytes]:
            for n_done in range(20):
                with suppress(KilledError):
                    writes_left[0] = n_done
                    answer = super()._ask(number, ask)
                    said.extend((party, site(trial, 1).count_totals()[0]) for party in answer if number == 1)
                    return answer
            raise AssertionError("no answer needs so many writes")

    monkeypatch.setattr(SessionStore, "run", killed)
    server = Patient(trial)
    assert server.total(proposal(mode)).survivors == CLIENTS
    if mode == "masked":  # keys, shares, vector; then its signature and shares
        assert said == [(1, 0), (1, 0), (1, 0), (1, 1), (1, 1)]
    else:  # its vector, and that it helps; its complaints; then its word on the survivors, hashes and masks
        assert said == [(1, 1), *[(FIRST_HELPER, 1)] * 2, *[(FIRST_HELPER, 2)] * 3]


@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_a_run_of_several_sums_is_one_entry(trial: Trial, mode: str) -> None:
    """DeepAFL's three, in a real run. Another run is free where its survivors are shown and the same."""
    allow(trial, mode)
    options = {"learner": "deepafl", "options": "n_layers=1 d_phi=16 d_f=16", "mode": mode, "corruption": 0.2}
    config = run_config(**options, **{"dropout": 0.2, "min-survivors": 3})
    rehearse(trial.folder, config)
    n_helped = 3 if mode == "committee" else 0
    assert [site(trial, party).count_totals() for party in (1, 3)] == [(3 + n_helped, 0), (3, 0)]
    if mode == "masked":
        rehearse(trial.folder, config)
        with pytest.raises(SecureSumError):
            rehearse(trial.folder, config, is_gone=vanishes(VICTIM, INVITE, 2))
    else:
        with pytest.raises((SecureSumError, DeploymentError)):
            rehearse(trial.folder, config)
    assert {site(trial, party).count_totals()[1] for party in CLIENTS} == {0}


@pytest.mark.parametrize("way", some_of(list(WAYS), ["another learner", "committee", "bfv, another format"]))
def test_it_wins_where_all_owners_allow_it(trial: Trial, way: str) -> None:
    """The attack is one: what stops it is the journal. And an allowance is for one total."""
    mode, second = chosen(way)
    allow(trial, mode, further_totals=1)
    server = LyingServer(trial)
    assert wins(trial, server, mode, second)
    with pytest.raises(SecureSumError):
        server.total(proposal(mode), lost=[1])
    assert all("(1 of 1 are used)" in said for said in server.refused.values())
    assert server.refused
