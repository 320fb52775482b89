"""Faults that were written by somebody who had seen no attack: what an audit at its default settings says of each.

The page says how many were noticed before anything was mended for them; those were counted by ``counted`` below on the
commit that lists them. A fault that stops a sum, or that the library itself refuses, cannot pass: the audit ends in an
error (exit code 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.blind_faults import BLIND
from support.further_faults import FURTHER
from support.held_out_faults import FRESH, Fresh
from support.last_faults import LAST
from support.passed_faults import PASSED

from analytic.errors import AnalyticError
from federation.datasets import bundled
from federation.errors import FederationError
from federation.modes import MODES
from secagg.dp import PrivacyError
from secagg.errors import SecureSumError
from simulations.audit.audit import AuditSettings, audit, known_to_be_wrong
from simulations.audit.books import wrong_books
from simulations.audit.published import wrong_vectors
from simulations.audit.refusals import wrong_grants

AT_ONCE = (
    "client_keeps_secrets", "context_not_bound", "one_key_pair", "threads_restart_keystream", "rho_halved",
    "central_noise_redrawn", "ledger_writes_nothing", "receipt_without_total", "sealing_keys_unsigned",
    "context_unsigned", "epochs_are_kept", "older_epochs_accepted", "policy_agrees", "formats_clip",
    "restored_client_speaks_again", "composition_takes_the_largest", "central_noise_of_fixed_seed",
    "survivors_not_promised", "client_bounds_open", "curve_of_half_the_shift",
)  # fmt: skip
"""What passed at first, and is asked for before any sum is made since."""

ASKED_ONCE = (wrong_books, wrong_grants, wrong_vectors)


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """What a process asks once is asked again, with the fault and after it."""
    for place in range(2):
        for one in ASKED_ONCE:
            one.cache_clear()
        if not place:
            yield


def passes(planted: Fresh) -> bool:
    """Whether the default audit of a fault's own mode says that all holds, but for whose code it is."""
    settings = AuditSettings(modes=(MODES[planted.mode],), cohorts=(), row_counts=())
    with suppress(SecureSumError, FederationError, AnalyticError, PrivacyError):
        if known_to_be_wrong() or wrong_grants(settings.tried_modes):
            return False
        return audit(bundled("digits"), settings).holds
    return False


@pytest.mark.parametrize("planted", [one for one in FRESH if one.name in AT_ONCE], ids=lambda one: one.name)
def test_small_books_and_what_nobody_may_grant_notice(planted: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the questions, which notice most of these as well."""
    monkeypatch.setattr("simulations.audit.books.other_answers", lambda: iter(()))
    monkeypatch.setattr("simulations.audit.refusals.taken_or_said", lambda mode: iter(()))
    planted.plant(monkeypatch)
    assert known_to_be_wrong() or wrong_grants((MODES[planted.mode],))


@pytest.mark.slow
@pytest.mark.parametrize("planted", [*FRESH, *FURTHER, *BLIND, *LAST, *PASSED], ids=lambda one: one.name)
def test_a_default_audit_notices(planted: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.plant(monkeypatch)
    assert not passes(planted)
