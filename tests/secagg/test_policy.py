"""A site's own conditions, which no server can lower."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.extras import needs
from support.parties import key_of, sealed_to

from secagg import Assumptions, CommitteeSum, Layout, MaskedSum, PlainSum, SumProtocol, seed_of_beacon
from secagg.dp import CentralNoisySum, DistributedNoise, NoisySum, PrivacyError, Release, guarantee
from secagg.dp.noise import CoordinateNoise
from secagg.dp.noisy_sum import with_headroom
from secagg.encryption import encrypted
from secagg.errors import ConfigurationError, PolicyError
from secagg.masked.series import MaskedSeries
from secagg.policy import MAX_GRAPHS, ClientPolicy, NoiseDemand
from secagg.primitives.boxes import BoxKey
from secagg.receipted_sum import ReceiptedSum, SignedBy

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
    server_identity=b"t" * 32,
)
ROSTER = dict(zip(CLIENTS, IDENTITIES, strict=True))
NOISE = CoordinateNoise(levels=np.ones(3, dtype=np.uint8), variances=(4,))
COMMITTEE = CommitteeSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=bytes(16),
    helper_keys=tuple((party, BoxKey(bytes([party]) * 32).public) for party in (6, 7)),
    min_survivors=4,
)
SIGNED_COMMITTEE = replace(
    COMMITTEE,
    identities=IDENTITIES,
    server_identity=b"t" * 32,
    **sealed_to({party: key_of(party) for party in (6, 7)}, dict(COMMITTEE.helper_keys)),
)
SERIES = MaskedSeries(clients=CLIENTS, series_id=bytes(16))


COLLUDING = DistributedNoise(
    total=CoordinateNoise(levels=NOISE.levels, variances=(900,)), min_noise_shares=3, colluders=1
)
NOISY = NoisySum(
    protocol=replace(SIGNED_COMMITTEE, layout=with_headroom(LAYOUT, len(CLIENTS), COLLUDING)),
    layout=LAYOUT,
    noise=COLLUDING,
)
BOUND = ClientPolicy(modes=frozenset({"committee+noise"}), identities=ROSTER)
RELEASE = Release.of("a sum", Fraction(1, 100), COLLUDING, unit="record", adjacency="add-remove")
DEMAND = NoiseDemand(epsilon=1.0)


def noisy(protocol: SumProtocol) -> CentralNoisySum:
    """A sum under noise, which hides the class of the one that protects the vectors."""
    return CentralNoisySum(protocol=protocol, noise=NOISE)


def knows_helpers(helpers: dict[int, bytes]) -> ClientPolicy:
    """A policy of committees with these helpers."""
    return ClientPolicy(modes=frozenset({"committee"}), helpers=helpers)


def accepts(*modes: str, identities: dict[int, bytes] = ROSTER) -> ClientPolicy:
    """A policy of these modes with the roster."""
    return ClientPolicy(modes=frozenset(modes), identities=identities)


def test_a_sum_that_keeps_the_policy_passes() -> None:
    ClientPolicy(min_clients=5, min_survivors=4, min_corruption=0.2, identities=ROSTER).check(SIGNED)
    accepts("committee").check(SIGNED_COMMITTEE)
    accepts("masked+central-noise").check(noisy(SIGNED))
    ClientPolicy(modes=frozenset({"committee"}), min_corruption=0.4).check(COMMITTEE)
    ClientPolicy(total_holders=2).check(SEMI_HONEST)
    knows_helpers(dict(COMMITTEE.helper_keys)).check(COMMITTEE)
    replace(knows_helpers({**dict(COMMITTEE.helper_keys), 99: bytes(32)}), min_helpers=2).check(COMMITTEE)
    replace(BOUND, noise=DEMAND).check(NOISY, releases=[RELEASE] * 2)
    ClientPolicy(modes={"committee"}, server_identity=b"t" * 32).check(SIGNED_COMMITTEE)  # type: ignore[arg-type]
    ClientPolicy(helpers={9: bytes(32)}, server_identity=b"t" * 32).check(SIGNED)
    replace(knows_helpers({}), min_corrupt_helpers=0).check(replace(COMMITTEE, corrupt_helpers=0))
    knows_helpers(dict(SIGNED_COMMITTEE.helper_identities)).check(SIGNED_COMMITTEE)


@pytest.mark.parametrize(
    ("policy", "protocol", "complaint"),
    [
        (ClientPolicy(), PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16)), "not in plain"),
        (ClientPolicy(min_clients=6), SEMI_HONEST, "a cohort of at least 6 clients, the sum has 5"),
        (ClientPolicy(min_survivors=5), SEMI_HONEST, "survivors in a total of at least 5 clients, the sum has 4"),
        (
            ClientPolicy(total_holders=3),
            SEMI_HONEST,
            "3 clients are given the totals .* must hold at least 5 clients, and this sum's may hold 4;",
        ),
        (ClientPolicy(min_corruption=0.8), SIGNED, "asks for a sum that 4 colluding clients .0.8 of 5. cannot harm"),
        (ClientPolicy(min_corruption=0.6), SEMI_HONEST, "that 3 colluding clients .* this one tolerates 2:"),
        (
            ClientPolicy(modes=frozenset({"committee"}), min_corruption=0.4),
            replace(COMMITTEE, min_survivors=3),
            "that 2 colluding clients .* this one tolerates 1:",
        ),
        (
            ClientPolicy(modes=frozenset({"plain"}), min_survivors=1, min_corruption=0.2),
            PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16)),
            "that 1 colluding clients .* this one tolerates 0:",
        ),
        (
            ClientPolicy(modes=frozenset({"masked+central-noise"}), min_corruption=0.6),
            noisy(SEMI_HONEST),
            "that 3 colluding clients .* this one tolerates 2:",
        ),
        (ClientPolicy(identities=ROSTER), SERIES.sum(1, LAYOUT, b""), "this sum has none and trusts the server"),
        (
            knows_helpers({**dict(COMMITTEE.helper_keys), 99: bytes(32)}),
            COMMITTEE,
            "lists 3 helpers and asks for 3 of them in every sum, this one has 2",
        ),
        (
            knows_helpers({**dict(COMMITTEE.helper_keys), 8: b"8" * 32}),
            replace(COMMITTEE, helper_keys=COMMITTEE.helper_keys[:1]),
            "lists 3 helpers and asks for 3 of them in every sum, this one has 1",
        ),
        (
            ClientPolicy(modes=frozenset({"committee"}), min_helpers=3),
            COMMITTEE,
            "lists 0 helpers and asks for 3 of them in every sum, this one has 2",
        ),
        (replace(BOUND, modes=frozenset({"committee"}), noise=DEMAND), SIGNED_COMMITTEE, "this sum's clients add none"),
        (replace(BOUND, noise=DEMAND), NOISY, "what came is for: no release"),
        (
            replace(BOUND, noise=DEMAND, min_corruption=0.4),
            NOISY,
            "expects 2 colluding clients, .* sized for 1: make them larger",
        ),
        (
            knows_helpers({}),
            replace(COMMITTEE, corrupt_helpers=0),
            "a committee that 1 of its 2 helpers cannot open with the server, this one tolerates 0",
        ),
        (
            knows_helpers({1: COMMITTEE.helper_keys[0][1], 2: bytes(32)}),
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
            knows_helpers({6: key_of(6).public}),
            SIGNED_COMMITTEE,
            r"1 of the 2 helpers have another key in this site's roster, or none: \[7\]",
        ),
        (knows_helpers(dict(SIGNED_COMMITTEE.helper_identities)), COMMITTEE, "2 of the 2 helpers have another key"),
        (ClientPolicy(max_entries=LAYOUT.size - 1), SEMI_HONEST, "this site makes vectors of at most"),
        (
            ClientPolicy(modes=frozenset({"committee"}), min_epoch=2),
            SIGNED_COMMITTEE,
            "seals to helpers' keys of epoch 2 or later, one of this sum has epoch 1",
        ),
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
    ids=lambda value: (
        value.replace("\\", "") if isinstance(value, str) else None
    ),  # pytest finds no test by a backslash
)
def test_what_falls_short_is_refused(policy: ClientPolicy, protocol: SumProtocol, complaint: str) -> None:
    with pytest.raises(PolicyError, match=complaint):
        policy.check(protocol)


def test_a_key_holder_that_could_confirm_a_guess_is_accepted_only_on_purpose() -> None:
    needs("tenseal")
    unmasked = PlainSum(layout=LAYOUT, clients=(1, 2, 3), session_id=bytes(16), min_survivors=3)
    ckks, bfv = encrypted(unmasked, "ckks").protocol, encrypted(unmasked, "bfv").protocol
    both = frozenset({"ckks", "bfv"})
    with pytest.raises(PolicyError, match="confirm a guess of a site's whole vector: use bfv"):
        ClientPolicy(modes=both).check(ckks)
    ClientPolicy(modes=both).check(bfv)
    ClientPolicy(modes=both, accept_confirmed_guesses=True).check(ckks)


def test_a_site_asks_for_receipts() -> None:
    offers = [SIGNED, *(ReceiptedSum(protocol=SIGNED, signed_by=by) for by in (SignedBy.SERVER, SignedBy.CLIENTS))]
    for least, asked in enumerate(("none", "server", "countersigned")):
        policy = replace(accepts("masked", identities=ROSTER), receipts=asked)
        for offered, protocol in enumerate(offers):
            if offered >= least:
                policy.check(protocol)
            else:
                with pytest.raises(PolicyError, match=f"receipts of the kind '{asked}'"):
                    policy.check(protocol)


@pytest.mark.parametrize(
    "bad",
    [
        {"min_clients": 0},
        {"min_survivors": 0},
        {"min_corruption": -0.01},
        {"min_corruption": 1.0},
        {"max_entries": 0},
        {"graphs": 0},
        {"graphs": MAX_GRAPHS + 1},
        {"min_helpers": 0},
        {"min_corrupt_helpers": -1},
        {"min_security_bits": 0},
        {"min_correctness_bits": 0},
        {"min_correctness_bits": float("nan")},
        {"receipts": "clients"},
        {"min_epoch": 0},
        {"total_holders": -1},
        {"identities": tuple(ROSTER.values())},
        {"identities": {1: ROSTER[1].hex()}},
        {"helpers": {101: bytearray(32)}},
        {"key_holders": [bytes(32)]},
        {"server_identity": bytes(32).hex()},
    ],
    ids=str,
)
def test_an_impossible_policy_cannot_be_made(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ClientPolicy(**bad)


def test_a_policy_may_ask_for_the_least_of_everything() -> None:
    """One step further each of these is refused: see above."""
    least = ClientPolicy(
        min_clients=1,
        min_survivors=1,
        min_corruption=0.0,
        max_entries=1,
        graphs=MAX_GRAPHS,
        min_helpers=1,
        min_corrupt_helpers=0,
        min_security_bits=0.5,
        min_correctness_bits=0.5,
    )
    least.check(replace(SEMI_HONEST, layout=Layout.of([("one", 1, 10)])))
    with pytest.raises(PolicyError, match="vectors of at most 1 entries, and this sum's have 2"):
        least.check(replace(SEMI_HONEST, layout=Layout.of([("two", 2, 10)])))


def test_a_site_believes_in_a_fifth_of_colluders_by_itself() -> None:
    """Two survivors of five are one client's vector for the other."""
    weak = replace(COMMITTEE, min_survivors=2)
    with pytest.raises(PolicyError, match=r"that 1 colluding clients .0.2 of 5. cannot harm.* this one tolerates 0"):
        ClientPolicy(modes=frozenset({"committee"}), min_survivors=1).check(weak)
    ClientPolicy(modes=frozenset({"committee"}), min_survivors=1, min_corruption=0.0).check(weak)


@pytest.mark.parametrize(
    ("release", "times", "complaint"),
    [
        (RELEASE, 5, "for one record, add-remove; 5 releases cost 1.* together: ask for more noise"),
        (replace(RELEASE, unit="client"), 1, "what came is for: client, add-remove"),
        (replace(RELEASE, adjacency="replace-one"), 1, "what came is for: record, replace-one"),
    ],
)
def test_less_noise_than_a_site_asks_for_is_refused(release: Release, times: int, complaint: str) -> None:
    """All releases of a run count together; a price for another unit of privacy is no price."""
    with pytest.raises(PolicyError, match=complaint):
        replace(BOUND, noise=DEMAND).check(NOISY, releases=[release] * times)


def test_a_demand_is_met_by_exactly_what_it_asks_for() -> None:
    cost = guarantee([RELEASE], 1e-5).epsilon
    NoiseDemand(epsilon=cost).check([RELEASE])
    with pytest.raises(PolicyError, match="1 releases cost"):
        NoiseDemand(epsilon=math.nextafter(cost, 0.0)).check([RELEASE])


@pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"delta": 0.9}, {"unit": "row"}, {"adjacency": "both"}], ids=str)
def test_an_impossible_demand_cannot_be_made(bad: dict[str, Any]) -> None:
    NoiseDemand(epsilon=1.0, delta=1e-6)
    with pytest.raises(PrivacyError):
        NoiseDemand(**{"epsilon": 1.0} | bad)


def test_a_large_delta_is_refused_where_a_site_says_so() -> None:
    """The run's, and the one at which the site itself computes what it costs."""
    NoiseDemand(epsilon=1.0).check_delta(0.1, 120)
    strict = NoiseDemand(epsilon=1.0, delta=1e-5, refuse_large_delta=True)
    strict.check_delta(1e-6, 99_999)
    with pytest.raises(PolicyError, match=r"the run's delta 0.1 is too large for 120 records.*refuse_large_delta"):
        strict.check_delta(0.1, 120)
    with pytest.raises(PolicyError, match="this site's own delta 1e-05 is too large for 100000 records"):
        strict.check_delta(1e-6, 100_000)


def test_shares_of_noise_count_on_no_more_honest_clients_than_the_sum() -> None:
    """Colluders know their own shares: a sum that is stated for one has noise that bears one at least."""
    protocol = MaskedSum.planned(
        layout=NOISY.protocol.layout,
        clients=CLIENTS,
        session_id=bytes(16),
        assumptions=Assumptions(corruption=0.2, dropout=0.2),
    )
    NoisySum(protocol=protocol, layout=LAYOUT, noise=COLLUDING)
    trusting = replace(COLLUDING, colluders=0)
    room = with_headroom(LAYOUT, len(CLIENTS), trusting)
    with pytest.raises(PrivacyError, match=r"stated for 1 colluding clients, .* shares are sized for 0"):
        NoisySum(protocol=replace(protocol, layout=room), layout=LAYOUT, noise=trusting)


@pytest.mark.parametrize("modes", ["masked+ckks", ["masked"], frozenset({1}), None], ids=str)
def test_modes_are_a_set_of_names(modes: object) -> None:
    """A text would accept each mode whose name is a part of it: "masked+ckks" also "masked" and "ckks"."""
    with pytest.raises(ConfigurationError, match="modes is a set of names"):
        ClientPolicy(modes=modes)  # type: ignore[arg-type]


def test_a_planned_sum_tells_what_it_tolerates() -> None:
    clients, beacon = tuple(range(1, 41)), bytes(32)
    planned = MaskedSum.planned(
        layout=LAYOUT,
        clients=clients,
        session_id=bytes(16),
        assumptions=Assumptions(corruption=0.1, dropout=0.2).against_grinding(len(clients)),
        graph_seed=seed_of_beacon(beacon, clients),
    )
    site = ClientPolicy(min_corruption=0.1, min_survivors=32, beacon=beacon)
    site.check(planned)
    for changes, complaint in (
        ({"min_corruption": 0.2}, "that 8 colluding clients"),
        ({"min_security_bits": 41}, "45.25 bits of privacy, the sum's graph is drawn for 44.25"),
        ({"min_correctness_bits": 21}, "21 bits of not being stuck, the sum's graph is drawn for 20"),
    ):
        with pytest.raises(PolicyError, match=complaint):
            replace(site, **changes).check(planned)
