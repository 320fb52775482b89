"""What server and sites say, as bytes: it comes back, and what is none is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rehearsed import CLIENTS, announced, by_server, invitation, site

from analytic.afl import AFL
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic_secagg.site.errors import Refusal, WireError
from analytic_secagg.site.invitation import Invitation
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import (
    END,
    INVITE,
    STEP,
    opened,
    read_end,
    read_invitation,
    read_messages,
    signed,
    write_end,
    write_invitation,
    write_messages,
)
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site.terms import Terms
from analytic_secagg.trial import Trial
from secagg import IdentityKey
from secagg.encoding import length_prefixed, split_parts
from secagg.errors import ConfigurationError

AFL_OF_TWO = AFL(n_features=2, n_targets=2, feature_format=RowFormat.parse("UQ5.11"), max_rows=10)
ROSTER = Roster(server=b"s" * 32, clients={1: b"a" * 32, 2: b"b" * 32, 3: b"c" * 32}, helpers={})
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
def test_an_invitation_brings_requests(requests: dict[int, bytes]) -> None:
    content = write_invitation(Invitation(terms=b"t", model=b"m"), requests)
    assert read_invitation(content) == (Invitation(terms=b"t", model=b"m"), requests)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        bytes(9),
        length_prefixed(b"analytic-secagg/2 messages"),
        length_prefixed(b"analytic-secagg/1 messages", b"s"),
        length_prefixed(b"analytic-secagg/2 messages", b"s")[:-1],
        write_invitation(Invitation(terms=b"t", model=b"m")),
        length_prefixed(b"analytic-secagg/2 messages", b"s", b"\0\0\0\1"),
        length_prefixed(b"analytic-secagg/2 messages", b"s", b"\1", b"x"),
        length_prefixed(b"analytic-secagg/2 messages", b"s", bytes(4), b"x"),
        length_prefixed(b"analytic-secagg/2 messages", b"s", *(b"\0\0\0\1", b"x") * 2),
    ],
)
def test_foreign_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(WireError, match=r"same version|speaks once"):
        read_messages(content)


def test_a_run_ends_whole_or_in_nothing() -> None:
    assert read_end(write_end(b"s", failure=b"f")) == (b"s", None, b"f")
    with pytest.raises(WireError, match="a model, totals and a signature, or in nothing"):
        read_end(length_prefixed(*split_parts(write_end(b"s")), b"model"))


def test_messages_are_no_invitation() -> None:
    with pytest.raises(WireError, match="both sides need the same version"):
        read_invitation(write_messages({}, session=b"s"))


def test_an_invitation_comes_back() -> None:
    terms = Terms(mode="masked", session=bytes(16), clients=(1, 2, 3), dropout=0.25)
    invitation = Invitation.make(terms, AFL_OF_TWO, AFL_OF_TWO.init())
    assert read_invitation(write_invitation(invitation)) == (invitation, {})
    assert Invitation.from_bytes(invitation.to_bytes()) == invitation
    assert Terms.from_bytes(invitation.terms) == terms


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
    data = Terms(mode="masked", session=bytes(16), clients=(1, 2, 3), dropout=0.25).to_bytes()
    assert change(data) != data
    with pytest.raises(WireError):
        Terms.from_bytes(change(data))


def test_a_complete_model_needs_no_sum() -> None:
    rows = ClientRows(np.eye(2), np.array([0, 1]))
    terms = Terms(mode="plain", session=bytes(16), clients=(1, 2, 3))
    with pytest.raises(WireError, match="this model is complete"):
        Invitation.make(terms, AFL_OF_TWO, fit_pooled(AFL_OF_TWO, rows)).agree(ROSTER)


@pytest.mark.parametrize("data", [b"", b"short", bytes(8), bytes(16), bytes(32), bytes(7) + b"\x02x"])
def test_bytes_that_are_no_stored_invitation(data: bytes) -> None:
    with pytest.raises(WireError, match="no stored invitation"):
        Invitation.from_bytes(data)


def test_what_is_no_model_is_refused() -> None:
    terms = Terms(mode="plain", session=bytes(16), clients=(1, 2, 3))
    with pytest.raises(WireError, match="no model"):
        Invitation(terms=terms.to_bytes(), model=b"{}").agree(ROSTER)


@pytest.mark.parametrize(
    "terms",
    [
        Terms(mode="plain", session=bytes(16), clients=(1, 2, 4)),
        Terms(mode="committee", session=bytes(16), clients=(1, 2, 3), helpers=(101,)),
        Terms(mode="secret", session=bytes(16), clients=(1, 2, 3)),
        Terms(mode="masked", session=bytes(3), clients=(1, 2, 3)),
        Terms(mode="masked", session=bytes(16), clients=(2, 1, 3)),
        Terms(mode="masked", session=bytes(16), clients=(1, 2, 3), corruption=0.5, dropout=0.5),
    ],
)
def test_unsafe_terms_make_no_protocol(terms: Terms) -> None:
    with pytest.raises(ConfigurationError):
        Invitation.make(terms, AFL_OF_TWO, AFL_OF_TWO.init()).agree(ROSTER)


def test_all_that_a_client_received_is_in_its_context() -> None:
    terms = Terms(mode="masked", session=bytes(16), clients=(1, 2, 3))
    more = AFL(n_features=2, n_targets=2, feature_format=RowFormat.parse("UQ5.11"), max_rows=10, ridge=1.0)
    other_terms = Terms(mode="masked", session=bytes(16), clients=(1, 2, 3), previous=bytes(16))
    agreed = [
        Invitation.make(t, learner, learner.init()).agree(ROSTER).protocol
        for t, learner in ((terms, AFL_OF_TWO), (terms, more), (other_terms, AFL_OF_TWO))
    ]
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
    content = write_invitation(announced(trial, invitation(mode=mode, helpers=HELPERS[mode], min_survivors=3)))
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
    proposed = invitation()
    file = partial(SiteFile.read, trial.site(1) / "site.toml")
    assert isinstance(
        handle_message(file, INVITE, partial(bytes, by_server(trial, INVITE, write_invitation(proposed)))), bytes
    )
    end = write_end(proposed.session)
    for forged in (end, signed(IdentityKey.generate(), END, end), by_server(trial, STEP, end)):
        assert handle_message(file, END, partial(bytes, forged)) is Refusal.BAD_MESSAGE
        assert held(trial, 1) == 1
    assert isinstance(handle_message(file, END, partial(bytes, by_server(trial, END, end))), bytes)
    assert held(trial, 1) == 0
