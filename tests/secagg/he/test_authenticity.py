"""A client takes no public context but the key holder's: pinned by its fingerprint, or signed for the session."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.extras import needs

from secagg import Layout, MaskedSum, PlainSum, run_in_memory
from secagg.encryption import (
    encrypted,
    fingerprint,
    generate_contexts,
    pin_context,
    sign_context,
)
from secagg.errors import ConfigurationError, PolicyError
from secagg.policy import ClientPolicy
from secagg.primitives.identity import IdentityKey

sys.path.append(str(Path(__file__).parent))

from he_parts import changed

needs("tenseal")

LAYOUT = Layout.of([("s", 5, 100)])
SESSION: dict[str, Any] = {"layout": LAYOUT, "clients": (1, 2, 3), "session_id": bytes(16)}
IDENTITY = IdentityKey(b"h" * 32)
KINDS = pytest.mark.parametrize("kind", ["bfv", "masked+ckks"])


@lru_cache
def parties_of(kind: Any) -> Any:
    """All parties of a sum whose public context the key holder signed."""
    alone = MaskedSum if kind.startswith("masked") else PlainSum
    return encrypted(alone(**SESSION), kind.removeprefix("masked+"), identity=IDENTITY)


def signed(kind: Any) -> Any:
    """The sum, which is public."""
    return parties_of(kind).protocol


def test_a_pinned_context_is_the_one_that_was_named() -> None:
    protocol = signed("bfv")
    expected = hashlib.sha256(protocol.encoder.public_context).digest()
    assert fingerprint(protocol.encoder.public_context) == expected
    assert pin_context(protocol.encoder.public_context, expected) is protocol.encoder.public_context
    swapped = generate_contexts(protocol.encoder.parameters).public_context
    with pytest.raises(ConfigurationError, match="somebody swapped the key") as caught:
        pin_context(swapped, expected)
    assert expected.hex() in str(caught.value)


@KINDS
def test_a_signed_sum_runs_and_says_so(kind: Any) -> None:
    protocol = signed(kind)
    vectors = {party: np.full(5, party) for party in protocol.clients}
    assert run_in_memory(parties_of(kind), vectors).result.total.tolist() == [6] * 5
    assert f"signed for this session by the key holder's identity {IDENTITY.public.hex()[:16]}" in protocol.explain()
    unsigned = changed(protocol, holder_identity=b"", signature=b"")
    assert "not signed: compare its fingerprint" in unsigned.explain()
    assert fingerprint(protocol.encoder.public_context).hex()[:16] in unsigned.explain()


@KINDS
def test_a_swapped_context_makes_no_session(kind: Any) -> None:
    """What a server does that wants to know the secret key: it makes a pair of its own."""
    protocol = signed(kind)
    swapped = generate_contexts(protocol.encoder.parameters).public_context
    with pytest.raises(ConfigurationError, match="not signed by key holder 4 for this session"):
        changed(protocol, public_context=swapped)
    forged = sign_context(
        IdentityKey(b"m" * 32),
        swapped,
        parameters=protocol.encoder.parameters,
        session_id=protocol.session_id,
        key_holder=4,
    )
    with pytest.raises(ConfigurationError, match="not signed by key holder 4"):
        changed(protocol, public_context=swapped, signature=forged)


@KINDS
@pytest.mark.parametrize("change", [{"session_id": b"x" * 16}, {"key_holder": 7}, {"signature": b""}])
def test_a_signature_is_for_one_session_and_holder(kind: Any, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="not signed by key holder"):
        changed(signed(kind), **change)


def test_a_signature_is_for_masked_vectors_or_for_clear_ones() -> None:
    """Where both take the same parameters. Under masks a key holder asks no consent: it expects to see no total."""
    layout = Layout.of([("s", 2, 2**47 - 1)])
    session: dict[str, Any] = SESSION | {"layout": layout, "clients": (1, 2, 3, 4, 5)}
    masked, plain = (encrypted(kind(**session), "ckks", identity=IDENTITY).protocol for kind in (MaskedSum, PlainSum))
    assert masked.encoder.parameters == plain.encoder.parameters  # type: ignore[attr-defined]
    for one, other in ((masked, plain), (plain, masked)):
        with pytest.raises(ConfigurationError, match="not signed by key holder 6"):
            replace(one, encoder=other.encoder)  # type: ignore[attr-defined,type-var,call-arg]


@KINDS
def test_a_signature_without_an_identity_from_the_operator_proves_nothing(kind: Any) -> None:
    for nobody in (b"", b"short"):
        with pytest.raises(ConfigurationError, match="needs the key holder's identity"):
            changed(signed(kind), holder_identity=nobody)


@KINDS
def test_a_site_knows_the_key_holder_by_its_identity(kind: Any) -> None:
    protocol = signed(kind)
    modes = frozenset({protocol.name})
    ClientPolicy(
        modes=modes, accept_confirmed_guesses=True, key_holders={protocol.encoder.key_holder: IDENTITY.public}
    ).check(protocol)
    with pytest.raises(PolicyError, match="1 of the 1 key holders have another key"):
        ClientPolicy(
            modes=modes,
            accept_confirmed_guesses=True,
            key_holders={protocol.encoder.key_holder: IdentityKey(b"x" * 32).public},
        ).check(protocol)
    unsigned = changed(protocol, holder_identity=b"", signature=b"")
    with pytest.raises(PolicyError, match="this sum has none and trusts the server"):
        ClientPolicy(
            modes=modes, accept_confirmed_guesses=True, key_holders={protocol.encoder.key_holder: IDENTITY.public}
        ).check(unsigned)
