"""Nodes that speak for others, and servers that choose who takes part: the run is exact or refused, never wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.parties import resealed
from support.rehearsed import edit, edit_all, events, is_exact, kept, proposal, rehearse, run_config, site

from analytic.errors import ImpossibleTotalError
from analytic.learner import ClientRows
from analytic.statistics import IntVector
from analytic_secagg.datasets import bundled
from analytic_secagg.federation import Step
from analytic_secagg.modes import KEY_HOLDER, MODES
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.errors import DeclinedError, Refusal
from analytic_secagg.site.key_files import read_secret, write_secret
from analytic_secagg.site.messages import INVITE, STEP, read_messages, read_proposal, write_messages
from analytic_secagg.site.presence import presence_message
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.trial import KEY_HOLDER_PARTY, Trial
from secagg import Layout
from secagg.committee.helper import CommitteeHelper
from secagg.config import SERVER
from secagg.primitives.identity import IdentityKey
from secagg.ring import RingVector
from secagg.wire import MessageType, message_type, payload_of, seal_frame

LIAR = 1


def own_key(trial: Trial) -> IdentityKey:
    """The only key that the liar has."""
    return IdentityKey(read_secret(trial.folder / f"site-{LIAR}" / "identity.key"))


def refusals(trial: Trial) -> list[tuple[str, str]]:
    return [(event["node"], event["reason"]) for event in events(trial) if event["event"] == "refused"]


def plausible_total(trial: Trial, config: dict[str, Any]) -> RingVector:
    """The sum of three sites' own statistics: a total that no check of a bound or a count finds strange."""
    learner = RunSettings.of(config).build_learner(len(trial.rows))
    spec = learner.next_sum(learner.init())
    assert spec is not None
    vectors = [spec.to_vector(learner.client_statistics(learner.init(), trial.rows[party])) for party in (1, 2, 3)]
    return RingVector.encode(Layout.of(spec.segments), vectors[0] + vectors[1] + vectors[2])


@pytest.mark.parametrize("mode", [name for name, mode in MODES.items() if mode.helper is KEY_HOLDER])
@pytest.mark.parametrize("is_signed", [False, True])
def test_no_other_node_answers_for_the_key_holder(trial: Trial, mode: str, is_signed: bool) -> None:
    """Site 1 says first that the key holder is here, and would decrypt to a total of its own."""
    config = run_config(mode=mode)

    def hear(party: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        if party != LIAR:
            return said
        session, messages = read_messages(content if isinstance(said, Refusal) else said)
        if kind == INVITE:
            roster = Roster.read(trial.folder / "site-1" / "roster.toml")
            protocol = Session.of(read_proposal(content)[0], roster).protocol
            here = presence_message(protocol, KEY_HOLDER_PARTY, own_key(trial) if is_signed else None)
            return write_messages({**messages, KEY_HOLDER_PARTY: here}, session=session)
        if message_type(messages.get(KEY_HOLDER_PARTY, b"")) is not MessageType.DECRYPTION_REQUEST:
            return said
        digest, total = messages[KEY_HOLDER_PARTY][6:38], plausible_total(trial, config).to_bytes()
        answer = seal_frame(MessageType.DECRYPTED_SUM, total, digest=digest, sender=KEY_HOLDER_PARTY, recipient=SERVER)
        return write_messages({KEY_HOLDER_PARTY: answer}, session=session)

    rehearse(trial.folder, config, hear=hear)
    is_exact(trial, [1, 2, 3, 4, 5])
    ((node, reason),) = refusals(trial)
    assert node == str(LIAR)
    told = "is not signed by the identity" if is_signed else "in a signature of 64 bytes, this one in one of 0"
    assert f"party {KEY_HOLDER_PARTY}: " in reason
    assert told in reason


@pytest.mark.parametrize("mode", ["plain", "ckks", "bfv", "committee"])
def test_no_node_surrounds_a_victim_with_its_own_vectors(trial: Trial, mode: str) -> None:
    """Site 1 speaks for clients 2 to 4 before they do, with vectors it knows: the total would lay client 5's bare."""

    def hear(party: int, kind: str, content: bytes, answer: bytes | Refusal) -> bytes | Refusal:
        if party != LIAR or kind != INVITE or isinstance(answer, Refusal):
            return answer
        session, said = read_messages(answer)
        own = said[LIAR]
        for victim in (2, 3, 4):
            known = own[:38] + victim.to_bytes(4, "big") + own[42:]
            said[victim] = resealed(known, payload_of(own), {victim: own_key(trial)})
        return write_messages(said, session=session)

    edit_all(trial, ("modes = [", 'modes = ["plain", '))
    rehearse(trial.folder, run_config(mode=mode), hear=hear)
    is_exact(trial, [1, 2, 3, 4, 5])
    assert {node for node, _ in refusals(trial)} == {str(LIAR)}
    assert len(refusals(trial)) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "committee", "helpers": (101,), "min_survivors": 3},
        {"mode": "committee", "helpers": (101, 102, 103), "min_survivors": 3},
        {"mode": "masked", "helpers": (101,)},
        {"clients": (1, 2, 3), "dropout": 0.0},
        {"mode": "committee", "helpers": (101, 102), "clients": (1, 2, 3), "min_survivors": 3},
    ],
)
def test_only_the_roster_says_who_takes_part(trial: Trial, changes: dict[str, Any]) -> None:
    """A lying server leaves out the helper it does not own, or all clients but its own and one; no minimum is set."""
    edit(trial, 3, ("min_clients = 5\n", ""))
    with pytest.raises(DeclinedError, match=r"must name exactly the [0-9] (clients|helpers)"):
        site(trial, 3).join(proposal(**changes))
    assert kept(trial, 3) == set()


def says_instead(said: Mapping[str, bytes]) -> Any:
    """The liar answers messages of these kinds with these bytes."""
    return lambda party, kind, content, answer: said.get(kind, answer) if party == LIAR else answer


@pytest.mark.parametrize(
    "said",
    [b"", b"an answer of another version", write_messages({4: b"x"}, session=bytes(32))],
    ids=["nothing", "another version", "another session"],
)
def test_an_answer_that_is_none_is_a_dropout(trial: Trial, said: bytes) -> None:
    rehearse(trial.folder, run_config(), hear=says_instead({INVITE: said, STEP: said}))
    is_exact(trial, [2, 3, 4, 5])
    assert refusals(trial) == [(str(LIAR), "its answer belongs to no message of this sum")]


def test_a_node_with_a_forged_identity_is_refused(trial: Trial) -> None:
    """It knows the roster, puts its own key in client 3's place, and is caught by the others' copies."""
    folder = trial.folder / "site-3"
    forged = IdentityKey(bytes(range(32)))
    (folder / "identity.key").unlink()
    write_secret(folder / "identity.key", forged.secret)
    roster = Roster.read(folder / "roster.toml")
    mine = Roster(server=roster.server, clients=dict(roster.clients) | {3: forged.public}, beside=roster.beside)
    (folder / "roster.toml").write_text(mine.to_toml())
    rehearse(trial.folder, run_config())
    assert refusals(trial)
    is_exact(trial, [1, 2, 4, 5])


def test_a_node_that_claims_another_party_gets_nowhere(trial: Trial) -> None:
    """Client 3's whole folder, copied to a second node: the first node whose message counted keeps the party."""
    shutil.copytree(trial.folder / "site-3", trial.folder / "site-9")
    rehearse(trial.folder, run_config())
    assert "at another node" in refusals(trial)[0][1]
    is_exact(trial, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("place", [1, 70, -2], ids=["a column that nobody has", "the Gram", "a class's rows"])
def test_a_poisoned_vector_within_the_bounds_makes_no_model(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """Site 2 adds to one entry of its vector what no rows can; masks hide whose it is, the total tells it."""
    honest, added = Step.vector, []

    def poisoned(step: Step[Any], rows: ClientRows) -> IntVector:
        vector = honest(step, rows)
        if not added:
            bounds = np.concatenate([np.full(one.size, one.client_bound) for one in step.layout.segments])
            added.append(bounds[place] // 2)
            vector[place] += added[0]
        return vector

    monkeypatch.setattr(Step, "vector", poisoned)
    with pytest.raises(ImpossibleTotalError, match="no rows add up to it"):
        rehearse(trial.folder, run_config())
    assert added
    assert not (trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").exists()
    assert [event["kind"] for event in events(trial) if event["event"] == "failed"] == ["ImpossibleTotalError"]


def test_one_of_four_helpers_may_lie_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    liar, honest = 103, CommitteeHelper._sum

    def lies(self: CommitteeHelper, place: int) -> Iterator[memoryview]:
        for part in honest(self, place):
            yield memoryview(bytes(len(part))) if self.party == liar else part

    monkeypatch.setattr(CommitteeHelper, "_sum", lies)
    of_four = Trial.create(tmp_path / "of-four", bundled("digits"), n_sites=5, n_helpers=4)
    rehearse(of_four.folder, run_config(mode="committee"))
    is_exact(of_four, [1, 2, 3, 4, 5])
    said = [event["helpers"] for event in events(of_four) if event["event"] == "different sums of masks"]
    assert said
    assert all(liar in pair for pair in said)
