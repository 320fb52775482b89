"""Nodes that speak for others, and servers that choose who takes part: the run is exact or refused, never wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from rehearsed import (
    INVITE,
    STEP,
    ForgedGrid,
    edit,
    edit_all,
    events,
    invitation,
    is_exact,
    kept,
    node_of,
    read_invitation,
    read_messages,
    run_config,
    site,
    write_messages,
)
from support.parties import resealed

from federation.flower import rehearsal
from federation.flower.rehearsal import rehearse
from federation.flower.wire import pack
from federation.modes import KEY_HOLDER, MODES
from federation.server.run_settings import RunSettings
from federation.site.errors import DeclinedError
from federation.site.key_files import read_secret
from federation.site.presence import say_present
from federation.site.roster import Roster
from federation.trial import KEY_HOLDER_PARTY, Trial
from secagg import Layout, SumProtocol
from secagg.config import SERVER
from secagg.encoding import length_prefixed
from secagg.primitives.identity import IdentityKey
from secagg.ring import RingVector
from secagg.wire import MessageType, message_type, payload_of, seal_frame

LIAR = 1


class LyingGrid(ForgedGrid):
    """The liar's node answers as ``lie`` says; None leaves its answer as it is."""

    trial: Trial

    def lie(self, message: Message, reply: Message) -> RecordDict | None:
        raise NotImplementedError

    def _deliver(self, message: Message) -> Message:
        reply = super()._deliver(message)
        if message.metadata.dst_node_id != node_of(LIAR):
            return reply
        lie = self.lie(message, reply)
        return reply if lie is None else Message(lie, reply_to=message)

    @property
    def own(self) -> IdentityKey:
        """The only key that the liar has."""
        return IdentityKey(read_secret(self.trial.folder / f"site-{LIAR}" / "identity.key"))

    def protocol(self, message: Message) -> SumProtocol:
        """The sum that an invitation is to."""
        roster = Roster.read(self.trial.folder / "site-1" / "roster.toml")
        return read_invitation(copy.deepcopy(message.content)).agree(roster).protocol


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
def test_no_other_node_answers_for_the_key_holder(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, is_signed: bool
) -> None:
    """Site 1 says first that the key holder is here, and would decrypt to a total of its own."""
    config = run_config(tmp_path, mode=mode)

    class Posing(LyingGrid):
        def lie(self, message: Message, reply: Message) -> RecordDict | None:
            session, messages = read_messages(message.content if reply.has_error() else reply.content)
            if message.metadata.message_type == INVITE:
                here = say_present(self.protocol(message), KEY_HOLDER_PARTY, self.own if is_signed else None)
                return write_messages({**messages, KEY_HOLDER_PARTY: here}, session=session)
            if message_type(messages.get(KEY_HOLDER_PARTY, b"")) is not MessageType.DECRYPTION_REQUEST:
                return None
            digest, total = messages[KEY_HOLDER_PARTY][6:38], plausible_total(trial, config).to_bytes()
            answer = seal_frame(
                MessageType.DECRYPTED_SUM, total, digest=digest, sender=KEY_HOLDER_PARTY, recipient=SERVER
            )
            return write_messages({KEY_HOLDER_PARTY: answer}, session=session)

    Posing.trial = trial
    monkeypatch.setattr(rehearsal, "InProcessGrid", Posing)
    rehearse(trial.folder, config)
    is_exact(trial, [1, 2, 3, 4, 5])
    ((node, reason),) = refusals(trial)
    assert node == str(node_of(LIAR))
    told = "is not signed by the identity" if is_signed else "in a signature of 64 bytes, this one in one of 0"
    assert f"party {KEY_HOLDER_PARTY}: " in reason
    assert told in reason


@pytest.mark.parametrize("mode", ["plain", "ckks", "bfv", "committee"])
def test_no_node_surrounds_a_victim_with_its_own_vectors(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Site 1 speaks for clients 2 to 4 before they do, with vectors it knows: the total would lay client 5's bare."""

    class Surrounding(LyingGrid):
        def lie(self, message: Message, reply: Message) -> RecordDict | None:
            if message.metadata.message_type != INVITE:
                return None
            session, said = read_messages(reply.content)
            own = said[LIAR]
            for party in (2, 3, 4):
                known = own[:38] + party.to_bytes(4, "big") + own[42:]
                said[party] = resealed(known, payload_of(own), {party: self.own})
            return write_messages(said, session=session)

    edit_all(trial, ("modes = [", 'modes = ["plain", '))
    Surrounding.trial = trial
    monkeypatch.setattr(rehearsal, "InProcessGrid", Surrounding)
    rehearse(trial.folder, run_config(tmp_path, mode=mode))
    is_exact(trial, [1, 2, 3, 4, 5])
    assert {node for node, _ in refusals(trial)} == {str(node_of(LIAR))}
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
        site(trial, 3).join(invitation(**changes))
    assert kept(trial, 3) == set()


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (RecordDict(), "belongs to no message of this sum"),
        (RecordDict({"content": ConfigRecord({"content": "text"})}), "belongs to no message of this sum"),
        (pack(b"an answer of another version"), "belongs to no message of this sum"),
        (write_messages({4: b"x"}, session=bytes(32)), "belongs to no message of this sum"),
    ],
    ids=["nothing", "no bytes", "another version", "another session"],
)
def test_an_answer_that_is_none_is_a_dropout(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: RecordDict, reason: str
) -> None:
    class Rubbish(LyingGrid):
        def lie(self, message: Message, reply: Message) -> RecordDict | None:
            return records if message.metadata.message_type in (INVITE, STEP) else None

    monkeypatch.setattr(rehearsal, "InProcessGrid", Rubbish)
    rehearse(trial.folder, run_config(tmp_path))
    is_exact(trial, [2, 3, 4, 5])
    assert refusals(trial) == [(str(node_of(LIAR)), f"its answer {reason}")]


@pytest.mark.parametrize(
    "parts",
    [[bytes(4), b"x"], [b"5", b"x"], [bytes(5000), b"x"], [b"\0\0\0\1"], [b"\0\0\0\1", b"x", b"\0\0\0\1", b"y"]],
    ids=["number 0", "a short number", "a long number", "no message", "two messages"],
)
def test_a_party_that_no_number_is_ends_no_run(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[bytes]
) -> None:
    class Misnaming(LyingGrid):
        def lie(self, message: Message, reply: Message) -> RecordDict | None:
            if message.metadata.message_type != INVITE:
                return None
            session, _ = read_messages(reply.content)
            return pack(length_prefixed(b"analytic-secagg/2 messages", session, *parts))

    monkeypatch.setattr(rehearsal, "InProcessGrid", Misnaming)
    rehearse(trial.folder, run_config(tmp_path))
    is_exact(trial, [2, 3, 4, 5])
