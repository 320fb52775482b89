"""What server and sites say, as bytes: it comes back, and what is none is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytic.afl import AFL
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from federation.site.errors import WireError
from federation.site.invitation import Invitation
from federation.site.messages import (
    read_end,
    read_invitation,
    read_messages,
    write_end,
    write_invitation,
    write_messages,
)
from federation.site.roster import Roster
from federation.site.terms import Terms
from secagg.encoding import length_prefixed, split_parts
from secagg.errors import ConfigurationError

AFL_OF_TWO = AFL(n_features=2, n_targets=2, feature_format=RowFormat.parse("UQ5.11"), max_rows=10)
ROSTER = Roster(server=b"s" * 32, clients={1: b"a" * 32, 2: b"b" * 32, 3: b"c" * 32}, helpers={})
PARTIES = st.dictionaries(st.integers(1, 2**32 - 1), st.binary(max_size=100), max_size=5)


@given(messages=PARTIES, session=st.binary())
def test_messages_come_back(messages: dict[int, bytes], session: bytes) -> None:
    assert read_messages(write_messages(messages, session=session)) == (session, messages)


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
