"""The public parameters: unsafe ones do not exist, and two that differ have two digests."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg import Assumptions, Layout, MaskedSum, PlainSum, new_session_id
from secagg.config import MAX_CLIENTS, MAX_PARTY
from secagg.encryption import Encrypted
from secagg.errors import ConfigurationError
from secagg.masked.assumptions import plan
from secagg.primitives.identity import IdentityKey

LAYOUT = Layout.of([("s", 2, 100)])
SESSION = bytes(range(16))
KINDS = [PlainSum, MaskedSum]


def make(kind: type = PlainSum, **changes: Any) -> Any:
    """A sound configuration with some fields changed."""
    return kind(**({"layout": LAYOUT, "clients": (1, 2, 3), "session_id": SESSION} | changes))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"clients": ()}, "clients, not 0|at least 2"),
        ({"clients": (1, 2, 2, 3)}, r"twice: \[2\]"),
        ({"clients": (3, 2, 1)}, "ascending"),
        ({"clients": (0, 1, 2)}, "1 to"),
        ({"clients": (-1, 1, 2)}, "1 to"),
        ({"clients": (1, 2, MAX_PARTY + 1)}, "1 to"),
        ({"clients": tuple(range(1, MAX_CLIENTS + 2))}, str(MAX_CLIENTS)),
        ({"session_id": b""}, "16 to 64 bytes, not 0"),
        ({"session_id": bytes(15)}, "not 15"),
        ({"session_id": bytes(65)}, "not 65"),
        ({"context": bytes(65)}, "not 65"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_unsafe_parameters_do_not_exist(kind: type, change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make(kind, **change)


@pytest.mark.parametrize("kind", KINDS)
def test_the_edges_are_allowed(kind: type) -> None:
    make(kind, clients=(1, MAX_PARTY), session_id=bytes(64), context=bytes(64))


@pytest.mark.parametrize("n", range(2, 12))
def test_a_threshold_is_more_than_half_and_at_most_all(n: int) -> None:
    clients = tuple(range(1, n + 1))
    for threshold in range(n + 3):
        if 2 * threshold > n and threshold <= n:
            assert make(MaskedSum, clients=clients, threshold=threshold).shares_needed == threshold
        else:
            with pytest.raises(ConfigurationError, match="more than half"):
                make(MaskedSum, clients=clients, threshold=threshold)


@given(st.integers(2, 2000))
def test_the_default_threshold_is_more_than_two_thirds(n: int) -> None:
    threshold = make(MaskedSum, clients=tuple(range(1, n + 1))).shares_needed
    assert 3 * threshold > 2 * n
    assert 3 * (threshold - 1) <= 2 * n
    assert threshold <= n


def test_one_client_has_nobody_to_hide_among() -> None:
    with pytest.raises(ConfigurationError, match="at least 2"):
        make(MaskedSum, clients=(1,))
    assert make(PlainSum, clients=(1,)).clients == (1,)


@pytest.mark.parametrize(
    "change",
    [{"threshold": -1}, {"threshold": 2**32}, {"min_survivors": -1}, {"min_survivors": 2**32}],
    ids=str,
)
def test_numbers_far_outside_are_configuration_errors_too(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make(MaskedSum if "threshold" in change else PlainSum, **change)


@pytest.mark.parametrize("min_survivors", [0, 4])
def test_fewest_survivors_of_a_plain_sum(min_survivors: int) -> None:
    with pytest.raises(ConfigurationError, match="min_survivors"):
        make(min_survivors=min_survivors)


CHANGES: list[dict[str, Any]] = [
    {"layout": Layout.of([("s", 2, 101)])},
    {"layout": Layout.of([("s", 3, 100)])},
    {"layout": Layout.of([("t", 2, 100)])},
    {"layout": Layout.of([("s", 1, 100), ("t", 1, 100)])},
    {"clients": (1, 2, 4)},
    {"clients": (1, 2)},
    {"clients": (1, 2, 3, 4)},
    {"session_id": bytes(16)},
    {"session_id": SESSION + b"\0"},
    {"context": b"another model"},
    {"context": b"\0"},
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_counts_in_the_digest(kind: type) -> None:
    digests = [make(kind).digest, *(make(kind, **change).digest for change in CHANGES)]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 32 for digest in digests)


def test_each_protocol_and_its_own_parameters_count_too() -> None:
    digests = {
        make(PlainSum).digest,
        make(PlainSum, min_survivors=2).digest,
        make(MaskedSum, threshold=2).digest,
        make(MaskedSum, threshold=3).digest,
    }
    assert len(digests) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_the_class_is_covered_here(kind: type) -> None:
    """A new public parameter must reach the digest; whoever adds one finds this test."""
    known = {"layout", "clients", "session_id", "context", "min_survivors", "encoder"}
    known |= {"threshold", "degree", "graph_seed", "assumptions", "identities", "server_identity"}
    assert {field.name for field in dataclasses.fields(kind) if field.init} <= known


def test_every_field_of_a_carrier_is_covered_in_the_tests_of_encrypted_sums() -> None:
    """The signature alone is in no digest: it vouches for the context, which is."""
    known = {"parameters", "public_context", "key_holder", "holder_identity", "signature"}
    assert {field.name for field in dataclasses.fields(Encrypted)} == known


def test_the_graph_and_the_identities_count_too() -> None:
    clients = tuple(range(1, 201))
    promised = Assumptions(corruption=0.05, dropout=0.05)
    found = plan(len(clients), promised)
    assert not found.is_complete
    sparse = {
        "clients": clients,
        "assumptions": promised,
        "degree": found.degree,
        "threshold": found.threshold,
        "graph_seed": bytes(16),
    }
    roster = tuple(IdentityKey(bytes([i]) * 32).public for i in range(6))
    digests = {
        make(MaskedSum, **sparse).digest,
        make(MaskedSum, **sparse | {"graph_seed": bytes(17)}).digest,
        make(MaskedSum, **sparse | {"degree": found.degree + 2, "threshold": found.threshold + 1}).digest,
        make(MaskedSum, clients=clients, threshold=134).digest,
        make(MaskedSum).digest,
        *(
            make(kind, identities=clients, server_identity=server).digest
            for kind in (MaskedSum, PlainSum)
            for clients in (roster[:3], roster[1:4], roster[2::-1])
            for server in roster[4:]
        ),
    }
    assert len(digests) == 5 + 12


@pytest.mark.parametrize("kind", KINDS)
def test_a_roster_that_is_no_row_of_keys_says_so(kind: type) -> None:
    """A mapping, as ``ClientPolicy`` takes it, the keys' hexadecimal text, and the secret side of a key."""
    keys = [IdentityKey(bytes([i]) * 32) for i in range(4)]
    rows: list[tuple[Any, str]] = [
        ({party: key.public for party, key in enumerate(keys[:3], 1)}, "int"),
        (tuple(key.public.hex() for key in keys[:3]), "str"),
        (tuple(keys[:3]), "IdentityKey"),
    ]
    for identities, came in rows:
        with pytest.raises(ConfigurationError, match=f"in the order of clients, not {came}:"):
            make(kind, identities=identities, server_identity=keys[3].public)


def test_bytes_cannot_move_from_one_field_to_the_next() -> None:
    one = make(session_id=SESSION + b"ab", context=b"c")
    other = make(session_id=SESSION + b"a", context=b"bc")
    assert one.digest != other.digest


def test_the_default_threshold_and_its_number_are_one_configuration() -> None:
    assert make(MaskedSum).digest == make(MaskedSum, threshold=3).digest


@given(st.sets(st.integers(1, MAX_PARTY), min_size=1, max_size=20), st.integers(0, MAX_PARTY))
def test_places_in_the_cohort(ids: set[int], stranger: int) -> None:
    clients = tuple(sorted(ids))
    config = make(clients=clients)
    assert [config.index(party) for party in clients] == list(range(len(clients)))
    if stranger not in ids:
        with pytest.raises(ConfigurationError, match=f"party {stranger} is not"):
            config.index(stranger)


def test_session_ids_are_fresh_and_long_enough() -> None:
    ids = {new_session_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(id_) == 16 for id_ in ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"clients": [1, 2, 3]}, "tuple of plain ints"),
        ({"clients": (1, 2, True)}, "tuple of plain ints"),
        ({"session_id": "0" * 16}, "are bytes"),
        ({"context": bytearray(16)}, "are bytes"),
    ],
    ids=str,
)
def test_types_that_would_change_under_the_digest_are_refused(kind: type, change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make(kind, **change)


SPARSE = {"clients": tuple(range(1, 31)), "assumptions": Assumptions(corruption=0.1, dropout=0.1, security_bits=1)}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"degree": 4, "threshold": 3, "assumptions": None, "graph_seed": SESSION}, "as good as its assumptions"),
        ({"degree": 5, "threshold": 3, "graph_seed": SESSION}, "even and 2 to 28, not 5"),
        ({"degree": 30, "threshold": 3, "graph_seed": SESSION}, "even and 2 to 28, not 30"),
        ({"degree": 4, "graph_seed": SESSION}, "needs its threshold; state it, or let MaskedSum.planned"),
        ({"degree": 4, "threshold": 3, "graph_seed": bytes(15)}, "public seed of 16 to 64 bytes, not 15"),
    ],
    ids=["no promise", "odd", "more than the cohort", "no threshold", "short seed"],
)
def test_half_a_graph_does_not_exist(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make(MaskedSum, **(SPARSE | change))


def test_the_threshold_follows_from_what_is_promised() -> None:
    """The more may vanish the lower, the more may collude the higher; without a promise, the usual two thirds."""
    cautious = make(MaskedSum, clients=tuple(range(1, 11)), assumptions=Assumptions(corruption=0.3, dropout=0.1))
    careless = make(MaskedSum, clients=tuple(range(1, 11)), assumptions=Assumptions(corruption=0.0, dropout=0.4))
    assert cautious.threshold is careless.threshold is None
    assert careless.shares_needed <= 10 - 4
    assert cautious.shares_needed > 3
    assert make(MaskedSum, clients=tuple(range(1, 11))).shares_needed == 7


@pytest.mark.parametrize("graph_seed", ["0" * 16, None, bytearray(16)], ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_graph_seed_is_bytes(graph_seed: object, sparse: bool) -> None:
    change = SPARSE | {"degree": 4, "threshold": 3} if sparse else {}
    with pytest.raises(ConfigurationError, match="a graph seed is bytes"):
        make(MaskedSum, **change, graph_seed=graph_seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", [None, [("s", 2, 100)], "s"], ids=str)
def test_a_layout_is_one(kind: type, layout: object) -> None:
    with pytest.raises(ConfigurationError, match="make it with Layout"):
        make(kind, layout=layout)


def test_a_planned_sum_is_bound_to_what_clients_received() -> None:
    promise = Assumptions(corruption=0.1, dropout=0.1)
    public: dict[str, Any] = {"layout": LAYOUT, "clients": (1, 2, 3), "session_id": SESSION, "assumptions": promise}
    with pytest.raises(ConfigurationError, match=r"seed of 16 to 64 bytes, not 0; .*seed_of_beacon") as error:
        MaskedSum.planned(**public | {"clients": tuple(range(1, 1001))})
    assert "planned" not in str(error.value)
    planned = MaskedSum.planned(**public, context=b"a model")
    assert planned == MaskedSum(**public, context=b"a model", threshold=planned.threshold)
    assert planned.digest != MaskedSum.planned(**public).digest


@given(
    n=st.integers(2, 40),
    corruption=st.floats(0, 1, exclude_max=True),
    dropout=st.floats(0, 1, exclude_max=True),
    threshold=st.none() | st.integers(1, 40),
)
def test_the_signatures_that_are_needed_are_never_more_than_clients(
    n: int, corruption: float, dropout: float, threshold: int | None
) -> None:
    """A promise of so much corruption is refused before: no threshold would keep it."""
    identities = tuple(number.to_bytes(32, "big") for number in range(1, n + 1))
    for promise in (None, Assumptions(corruption=corruption, dropout=dropout, malicious_server=True)):
        with suppress(ConfigurationError):
            config = make(
                MaskedSum,
                clients=tuple(range(1, n + 1)),
                identities=identities,
                server_identity=b"s" * 32,
                threshold=threshold,
                assumptions=promise,
            )
            assert config.signatures_needed <= config.survivors_needed <= n
