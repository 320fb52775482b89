"""A site's own conditions, which no server can lower."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from secagg import Assumptions, CommitteeSum, Layout, MaskedSum, PlainSum, SumProtocol
from secagg.carriers import encrypted
from secagg.dp import CentralNoisySum, CoordinateNoise
from secagg.errors import ConfigurationError, PolicyError
from secagg.masked.series import MaskedSeries
from secagg.policy import ClientPolicy
from secagg.primitives.agreement import KeyPair

LAYOUT = Layout.of([("counts", 3, 10)])
CLIENTS = (1, 2, 3, 4, 5)
IDENTITIES = tuple(bytes([party]) * 32 for party in CLIENTS)
SEMI_HONEST = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16))
SIGNED = MaskedSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=bytes(16),
    threshold=4,
    identities=IDENTITIES,
    server_identity=bytes(32),
)
ROSTER = dict(zip(CLIENTS, IDENTITIES, strict=True))
NOISE = CoordinateNoise(levels=np.ones(3, dtype=np.uint8), variances=(4,))
COMMITTEE = CommitteeSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=bytes(16),
    helper_keys=tuple((party, KeyPair(bytes([party]) * 32).public) for party in (6, 7)),
    min_survivors=4,
)
SIGNED_COMMITTEE = replace(
    COMMITTEE,
    identities=IDENTITIES,
    server_identity=bytes(32),
    helper_identities=((6, b"6" * 32), (7, b"7" * 32)),
)
SERIES = MaskedSeries(clients=CLIENTS, series_id=bytes(16))


def noisy(protocol: SumProtocol) -> CentralNoisySum:
    """A sum under noise, which hides the class of the one that protects the vectors."""
    return CentralNoisySum(protocol=protocol, noise=NOISE)


def knows_helpers(helpers: dict[int, bytes]) -> ClientPolicy:
    """A policy of committees with these helpers."""
    return ClientPolicy(modes=frozenset({"committee"}), helpers=helpers)


def accepts(*modes: str, identities: dict[int, bytes] = ROSTER) -> ClientPolicy:
    """A policy of these modes with the roster."""
    return ClientPolicy(modes=frozenset(modes), identities=identities)


def accepts_signers(keys: dict[int, bytes]) -> ClientPolicy:
    """A policy of committees whose helpers sign with these keys."""
    return ClientPolicy(modes=frozenset({"committee"}), helper_identities=keys)


def test_a_sum_that_keeps_the_policy_passes() -> None:
    ClientPolicy(min_clients=5, min_survivors=4, min_corruption=0.2, identities=ROSTER).check(SIGNED)
    accepts("committee").check(SIGNED_COMMITTEE)
    accepts("masked+central-noise").check(noisy(SIGNED))
    ClientPolicy(modes=frozenset({"committee"}), min_corruption=0.4).check(COMMITTEE)
    knows_helpers({**dict(COMMITTEE.helper_keys), 99: bytes(32)}).check(COMMITTEE)
    ClientPolicy(modes={"committee"}, server_identity=bytes(32)).check(SIGNED_COMMITTEE)  # type: ignore[arg-type]
    ClientPolicy(helpers={9: bytes(32)}, server_identity=bytes(32)).check(SIGNED)
    accepts_signers(dict(SIGNED_COMMITTEE.helper_identities)).check(SIGNED_COMMITTEE)


@pytest.mark.parametrize(
    ("policy", "protocol", "complaint"),
    [
        (ClientPolicy(), PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16)), "not in plain"),
        (ClientPolicy(min_clients=6), SEMI_HONEST, "a cohort of at least 6 clients, the sum has 5"),
        (ClientPolicy(min_survivors=5), SEMI_HONEST, "survivors in a total of at least 5 clients, the sum has 4"),
        (ClientPolicy(min_corruption=0.8), SIGNED, "asks for a sum that 4 colluding clients .0.8 of 5. cannot harm"),
        (ClientPolicy(min_corruption=0.6), SEMI_HONEST, "that 3 colluding clients .* this one bears 2:"),
        (
            ClientPolicy(modes=frozenset({"committee"}), min_corruption=0.4),
            replace(COMMITTEE, min_survivors=3),
            "that 2 colluding clients .* this one bears 1:",
        ),
        (
            ClientPolicy(modes=frozenset({"plain"}), min_survivors=1, min_corruption=0.2),
            PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16)),
            "that 1 colluding clients .* this one bears 0:",
        ),
        (
            ClientPolicy(modes=frozenset({"masked+central-noise"}), min_corruption=0.6),
            noisy(SEMI_HONEST),
            "that 3 colluding clients .* this one bears 2:",
        ),
        (ClientPolicy(identities=ROSTER), SERIES.sum(1, LAYOUT, b""), "this sum has none and trusts the server"),
        (
            knows_helpers({1: COMMITTEE.helper_keys[0][1]}),
            COMMITTEE,
            r"2 of the 2 helpers have another key .*: \[6, 7\]",
        ),
        (
            knows_helpers(dict(COMMITTEE.helper_keys) | {7: bytes(32)}),
            COMMITTEE,
            r"1 of the 2 helpers have another key in this site's roster, or none: \[7\]",
        ),
        (
            ClientPolicy(modes=frozenset({"committee"}), server_identity=b"s" * 32),
            SIGNED_COMMITTEE,
            "1 of the 1 servers have another key",
        ),
        (
            ClientPolicy(modes=frozenset({"committee"}), server_identity=b"s" * 32),
            COMMITTEE,
            "knows every server by its key; this sum has none",
        ),
        (ClientPolicy(server_identity=b"s" * 32), SIGNED, "1 of the 1 servers have another key"),
        (ClientPolicy(server_identity=b"s" * 32), SEMI_HONEST, "knows every server by its key; this sum has none"),
        (
            accepts_signers({6: b"6" * 32}),
            SIGNED_COMMITTEE,
            r"1 of the 2 signing helpers have another key in this site's roster, or none: \[7\]",
        ),
        (accepts_signers({6: b"6" * 32}), COMMITTEE, "knows every signing helper by its key; this sum has none"),
        (
            accepts("plain"),
            PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16), min_survivors=3),
            "this sum has none and trusts the server",
        ),
        (ClientPolicy(identities=ROSTER), SEMI_HONEST, "this sum has none and trusts the server"),
        (ClientPolicy(identities=ROSTER | {2: IDENTITIES[2]}), SIGNED, "1 of the 5 clients have another key"),
        (ClientPolicy(), COMMITTEE, "not in committee"),
        (accepts("committee"), COMMITTEE, "this sum has none and trusts the server"),
        (
            accepts("committee", identities={}),
            replace(COMMITTEE, min_survivors=2),
            "survivors in a total of at least 3",
        ),
        (
            accepts("committee", identities=ROSTER | {2: IDENTITIES[2]}),
            SIGNED_COMMITTEE,
            "1 of the 5 clients have another key",
        ),
        (accepts("masked+central-noise"), noisy(SEMI_HONEST), "this sum has none and trusts the server"),
        (
            accepts("masked+central-noise", identities=ROSTER | {2: IDENTITIES[2]}),
            noisy(SIGNED),
            "1 of the 5 clients have another key",
        ),
    ],
)
def test_what_falls_short_is_refused(policy: ClientPolicy, protocol: SumProtocol, complaint: str) -> None:
    with pytest.raises(PolicyError, match=complaint):
        policy.check(protocol)


def test_a_key_holder_that_could_confirm_a_guess_is_accepted_only_on_purpose() -> None:
    unmasked = PlainSum(layout=LAYOUT, clients=(1, 2, 3), session_id=bytes(16), min_survivors=3)
    ckks, bfv = encrypted(unmasked, "ckks").protocol, encrypted(unmasked, "bfv").protocol
    both = frozenset({"ckks", "bfv"})
    with pytest.raises(PolicyError, match="confirm a guess of a site's whole vector: use bfv"):
        ClientPolicy(modes=both).check(ckks)
    ClientPolicy(modes=both).check(bfv)
    ClientPolicy(modes=both, accept_confirmed_guesses=True).check(ckks)


def test_an_impossible_policy_cannot_be_made() -> None:
    with pytest.raises(ConfigurationError):
        ClientPolicy(min_clients=0)


@pytest.mark.parametrize("modes", ["masked+ckks", ["masked"], frozenset({1}), None], ids=str)
def test_modes_are_a_set_of_names(modes: object) -> None:
    """A text would accept each mode whose name is a part of it: "masked+ckks" also "masked" and "ckks"."""
    with pytest.raises(ConfigurationError, match="modes is a set of names"):
        ClientPolicy(modes=modes)  # type: ignore[arg-type]


def test_a_planned_sum_tells_what_it_tolerates() -> None:
    clients = tuple(range(1, 41))
    planned = MaskedSum.planned(
        layout=LAYOUT,
        clients=clients,
        session_id=bytes(16),
        assumptions=Assumptions(corruption=0.1, dropout=0.2),
        graph_seed=bytes(16),
    )
    ClientPolicy(min_corruption=0.1, min_survivors=32).check(planned)
    with pytest.raises(PolicyError, match="that 8 colluding clients"):
        ClientPolicy(min_corruption=0.2).check(planned)
