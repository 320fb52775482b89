"""Modes: what is installed by default, and what a missing extra says."""

from __future__ import annotations

import numpy as np
import pytest
from support.extras import INSTALLED, modes
from support.parties import registered

from analytic_secagg.errors import UsageError
from analytic_secagg.modes import LARGEST_COMPLETE, MODES, Mode, choose_modes
from secagg import IdentityKey, Layout, run_in_memory
from secagg.errors import ConfigurationError, SecureSumError
from secagg.in_memory import Envelope

CLIENTS = (1, 2, 3, 4)
LAYOUT = Layout.of([("entries", 3, 1000)])

ABSENT = Mode(name="absent", make=MODES["plain"].make, requires="a_module_that_nobody_has", extra="he")


def test_all_installed_modes_are_the_default() -> None:
    with registered(ABSENT):
        assert choose_modes(None) == tuple(INSTALLED)


@pytest.mark.parametrize("name", [name for name, mode in MODES.items() if mode.helper is not None])
def test_the_secrets_of_helpers_serve_one_sum(name: str) -> None:
    """Also where the helpers keep their identities: what opens one sum opens no other."""
    if not MODES[name].installed:
        pytest.skip(MODES[name].missing_extra)
    identities = {party: IdentityKey.generate() for party in range(20)}
    secrets = []
    for session_id in (b"1" * 16, b"2" * 16):
        parties = MODES[name].in_one_process(
            layout=LAYOUT, clients=CLIENTS, session_id=session_id, identity_of=identities.__getitem__
        )
        of_helpers = [parties.of_party(helper) for helper in parties.helpers]
        secrets.append([own.decryption or (own.boxes.secret if own.boxes else b"") for own in of_helpers])
    assert all(secrets[0])
    assert not set(secrets[0]) & set(secrets[1])


def test_named_modes_keep_their_order_and_come_once() -> None:
    assert [mode.name for mode in choose_modes(["masked", "plain", "masked"])] == ["masked", "plain"]


def test_an_unknown_mode_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"mode must be one of plain, masked.*not 'telepathy'"):
        choose_modes(["plain", "telepathy"])


def test_a_mode_without_its_extra_says_how_to_install_it() -> None:
    with (
        registered(ABSENT),
        pytest.raises(UsageError, match=r"pip install '\.\[he\]', or name other modes"),
    ):
        choose_modes(["absent"])


def test_a_cohort_that_a_mode_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 2 clients"):
        MODES["masked"].guarantee((1,))


@pytest.mark.parametrize("in_series", [False, True])
@pytest.mark.parametrize("mode", modes())
def test_the_sums_of_a_run_are_exact_and_have_a_session_each(mode: Mode, in_series: bool) -> None:
    sums, sessions = mode.sums(CLIENTS, in_series=in_series), set()
    for number in range(3):
        parties = sums.next_sum(LAYOUT, f"sum {number}".encode())
        vectors = {party: np.array([party, -number, 7]) for party in CLIENTS}
        first = b""

        def keep(envelope: Envelope) -> None:
            nonlocal first
            first = first or envelope.message

        run = run_in_memory(parties, vectors, record=keep)
        assert run.refused == ()
        assert run.result.total.tolist() == [10, -4 * number, 28]
        sessions.add(first)
        guarantee = mode.guarantee(CLIENTS)
        before = 0 if in_series and number and mode.make_series else guarantee.messages_before_vector
        assert {run.traffic[party].messages_up for party in CLIENTS} == {before + 1 + guarantee.messages_after_vector}
    assert len(sessions) == 3


@pytest.mark.parametrize("n_clients", [7, LARGEST_COMPLETE + 1])
@pytest.mark.parametrize("in_series", [False, True])
@pytest.mark.parametrize("mode", modes())
def test_every_mode_heeds_the_fewest_survivors(mode: Mode, in_series: bool, n_clients: int) -> None:
    clients = tuple(range(1, n_clients + 1))
    for fewest in (n_clients - 1, n_clients):
        sums = mode.sums(clients, in_series=in_series, min_survivors=fewest)
        assert sums.next_sum(LAYOUT, b"").protocol.survivors_needed >= fewest
        assert mode.guarantee(clients, min_survivors=fewest).min_survivors >= fewest
    parties = mode.sums(CLIENTS, in_series=in_series, min_survivors=4).next_sum(LAYOUT, b"")
    with pytest.raises(SecureSumError, match=r"need"):
        run_in_memory(parties, {party: np.array([party, 0, 7]) for party in CLIENTS}, dropouts={2: 0})
    with pytest.raises(ConfigurationError, match=r"min_survivors"):
        mode.sums(CLIENTS, in_series=in_series, min_survivors=5).next_sum(LAYOUT, b"")


@pytest.mark.parametrize("mode", [mode for mode in MODES.values() if mode.make_series], ids=lambda mode: mode.name)
def test_large_simulated_cohorts_have_a_sparse_graph_and_smaller_ones_a_complete_one(mode: Mode) -> None:
    for n_clients, dropouts in ((LARGEST_COMPLETE, 33), (LARGEST_COMPLETE + 1, 30)):
        clients = tuple(range(1, n_clients + 1))
        for in_series in (False, True):
            protocol = mode.sums(clients, in_series=in_series).next_sum(LAYOUT, b"").protocol
            assert (len(protocol.neighbours(1)) < n_clients - 1) == (n_clients > LARGEST_COMPLETE)
        assert mode.guarantee(clients).min_survivors == n_clients - dropouts
