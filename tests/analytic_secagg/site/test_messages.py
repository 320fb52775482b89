"""What server and sites say, as bytes: it comes back, and what is none is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rehearsed import CLIENTS, announced, by_server, proposal, site

from analytic.afl import AFL
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic_secagg.site.errors import Refusal, WireError
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import (
    END,
    INVITE,
    STEP,
    opened,
    read_end,
    read_messages,
    read_proposal,
    signed,
    write_end,
    write_messages,
    write_proposal,
)
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
from secagg import IdentityKey
from secagg.encoding import length_prefixed, split_parts
from secagg.errors import ConfigurationError

AFL_OF_TWO = AFL(n_features=2, n_targets=2, feature_format=RowFormat.parse("UQ5.11"), max_rows=10)
ROSTER = Roster(server=b"s" * 32, clients={1: b"a" * 32, 2: b"b" * 32, 3: b"c" * 32}, helpers={})
PROPOSED = TrainingProposal(mode="masked", session=bytes(16), clients=(1, 2, 3), dropout=0.25, model=b"m")
PARTIES = st.dictionaries(st.integers(1, 2**32 - 1), st.binary(max_size=100), max_size=5)


@given(messages=PARTIES, session=st.binary())
def test_messages_come_back(messages: dict[int, bytes], session: bytes) -> None:
    assert read_messages(write_messages(messages, session=session)) == (session, messages)


@given(content=st.binary(), kind=st.sampled_from([INVITE, STEP, END]))
def test_an_envelope_is_of_its_signer_and_kind(content: bytes, kind: str) -> None:
    server, message = IdentityKey(bytes(32)), signed(IdentityKey(bytes(32)), kind, content)
    assert opened(server.public, kind, message) == content
    for key, other in ((IdentityKey(b"x" * 32).public, kind), (server.public, "context")):
        with pytest.raises(WireError, match="is not signed by the roster's server"):
            opened(key, other, message)


@given(requests=PARTIES)
def test_a_proposal_brings_requests(requests: dict[int, bytes]) -> None:
    assert read_proposal(write_proposal(PROPOSED, requests)) == (PROPOSED, requests)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        bytes(9),
        length_prefixed(b"analytic-secagg/2 messages"),
        length_prefixed(b"analytic-secagg/1 messages", b"s"),
        length_prefixed(b"analytic-secagg/2 messages", b"s")[:-1],
        write_proposal(PROPOSED),
        length_prefixed(b"analytic-secagg/2 messages", b"s", b"\0\0\0\1"),
        length_prefixed(b"analytic-secagg/2 messages", b"s", b"\1", b"x"),
        length_prefixed(b"analytic-secagg/2 messages", b"s", bytes(4), b"x"),
        length_prefixed(b"analytic-secagg/2 messages", b"s", *(b"\0\0\0\1", b"x") * 2),
    ],
)
def test_foreign_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(WireError, match=r"same version|is listed once"):
        read_messages(content)


def test_a_run_ends_whole_or_in_nothing() -> None:
    assert read_end(write_end(b"s", failure=b"f")) == (b"s", None, b"f")
    with pytest.raises(WireError, match="a model, totals and a signature, or in nothing"):
        read_end(length_prefixed(*split_parts(write_end(b"s")), b"model"))


def test_messages_are_no_proposal() -> None:
    with pytest.raises(WireError, match="both sides need the same version"):
        read_proposal(write_messages({}, session=b"s"))


def test_a_proposal_comes_back() -> None:
    proposed = proposal(AFL_OF_TWO).with_announced({101: b"key", 7: b"other"})
    assert read_proposal(write_proposal(proposed)) == (proposed, {})
    assert TrainingProposal.from_bytes(proposed.to_bytes()) == proposed


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b" ",
        lambda data: data.replace(b'"version":3', b'"version":1'),
        lambda data: data.replace(b'"clients":[1,2,3]', b'"clients":[1,2.0,3]'),
        lambda data: data.replace(b'"clients":[1,2,3]', b'"clients":"123"'),
        lambda data: data.replace(b'"dropout":0.25', b'"dropout":NaN'),
        lambda data: data.replace(b'"session":"00', b'"session":"zz'),
        lambda data: b"[" * 100_000,
    ],
)
def test_terms_have_one_form(change: Any) -> None:
    terms = PROPOSED.terms
    assert change(terms) != terms
    assert TrainingProposal.from_bytes(length_prefixed(terms, b"", b"m")) == PROPOSED
    with pytest.raises(WireError):
        TrainingProposal.from_bytes(length_prefixed(change(terms), b"", b"m"))


def test_a_complete_model_needs_no_sum() -> None:
    rows = ClientRows(np.eye(2), np.array([0, 1]))
    proposed = proposal(AFL_OF_TWO, fit_pooled(AFL_OF_TWO, rows), mode="plain", clients=(1, 2, 3))
    with pytest.raises(WireError, match="this model is complete"):
        Session.of(proposed, ROSTER)


@pytest.mark.parametrize("data", [b"", b"short", bytes(8), bytes(16), bytes(32), bytes(7) + b"\x02x"])
def test_bytes_that_are_no_proposal(data: bytes) -> None:
    with pytest.raises(WireError, match="no training proposal"):
        TrainingProposal.from_bytes(data)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(WireError, match="no model"):
        Session.of(replace(PROPOSED, model=b"{}"), ROSTER)


@pytest.mark.parametrize(
    "terms",
    [
        {"mode": "plain", "clients": (1, 2, 4)},
        {"mode": "committee", "helpers": (101,)},
        {"mode": "secret"},
        {"session": bytes(3)},
        {"clients": (2, 1, 3)},
        {"corruption": 0.5, "dropout": 0.5},
    ],
)
def test_unsafe_terms_make_no_protocol(terms: dict[str, Any]) -> None:
    good = {"clients": (1, 2, 3), "session": bytes(16), "dropout": 0.0}
    Session.of(proposal(AFL_OF_TWO, **good), ROSTER)
    with pytest.raises(ConfigurationError):
        Session.of(proposal(AFL_OF_TWO, **good | terms), ROSTER)


def test_all_that_a_client_received_is_in_its_context() -> None:
    terms: dict[str, Any] = {"session": bytes(16), "clients": (1, 2, 3), "dropout": 0.0}
    more = AFL(n_features=2, n_targets=2, feature_format=RowFormat.parse("UQ5.11"), max_rows=10, ridge=1.0)
    proposed = [proposal(AFL_OF_TWO, **terms), proposal(more, **terms)]
    proposed.append(replace(proposed[0], previous=bytes(16)))
    agreed = [Session.of(one, ROSTER).protocol for one in proposed]
    layouts = {protocol.layout for protocol in agreed}
    digests = {protocol.digest for protocol in agreed}  # type: ignore[attr-defined]
    assert len(layouts) == 1
    assert len(digests) == 3


def held(trial: Trial, party: int) -> int:
    """How many sessions a site keeps."""
    found = site(trial, party).look()
    return 0 if found is None else found[1]


HELPERS = {"masked": (), "committee": (101, 102)}


@pytest.mark.parametrize("by", ["nobody", "a stranger", "the network, one bit", "the network, another kind"])
@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_an_invitation_that_the_server_did_not_sign_moves_no_site(by: str, mode: str, trial: Trial) -> None:
    """Without the check one message from anybody made a committee's sites upload and counted their rows as used."""
    content = write_proposal(announced(trial, proposal(mode=mode, helpers=HELPERS[mode], min_survivors=3)))
    good = by_server(trial, INVITE, content)
    changed = bytearray(good)
    changed[len(changed) // 2] ^= 1
    forged = {
        "nobody": content,
        "a stranger": signed(IdentityKey.generate(), INVITE, content),
        "the network, one bit": bytes(changed),
        "the network, another kind": by_server(trial, END, content),
    }[by]
    for party in CLIENTS:
        file = partial(SiteFile.read, trial.site(party) / "site.toml")
        assert handle_message(file, INVITE, partial(bytes, forged)) is Refusal.BAD_MESSAGE
        assert site(trial, party).count_totals() == (0, 0)
        assert held(trial, party) == 0
    for party in CLIENTS:  # and the server's own does
        file = partial(SiteFile.read, trial.site(party) / "site.toml")
        assert isinstance(handle_message(file, INVITE, partial(bytes, good)), bytes)


def test_nobody_but_the_server_ends_a_session(trial: Trial) -> None:
    proposed = proposal()
    file = partial(SiteFile.read, trial.site(1) / "site.toml")
    assert isinstance(
        handle_message(file, INVITE, partial(bytes, by_server(trial, INVITE, write_proposal(proposed)))), bytes
    )
    end = write_end(proposed.session)
    for forged in (end, signed(IdentityKey.generate(), END, end), by_server(trial, STEP, end)):
        assert handle_message(file, END, partial(bytes, forged)) is Refusal.BAD_MESSAGE
        assert held(trial, 1) == 1
    assert isinstance(handle_message(file, END, partial(bytes, by_server(trial, END, end))), bytes)
    assert held(trial, 1) == 0
