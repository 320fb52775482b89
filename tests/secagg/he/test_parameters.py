"""Unsafe or inexact parameters cannot be constructed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.encryption import choose_parameters, cipher, explain_choice
from secagg.encryption.cipher import VectorCipher, best_cipher
from secagg.encryption.rings import MAX_MODULUS_BITS, RINGS, SPECIAL_PRIME_BITS, Ring, largest_prime_below
from secagg.encryption.schemes import FAILURE_BITS, MARGIN, MAX_SLOTS, EncryptionParameters, SchemeName
from secagg.errors import ConfigurationError
from secagg.layout import Layout

LAYOUT = Layout.of([("gram", 2080, 2**40), ("cross", 640, 2**31 - 1)])
BFV = choose_parameters(LAYOUT, 50, scheme="bfv")
CKKS = choose_parameters(LAYOUT, 50, scheme="ckks")

layouts = st.lists(
    st.tuples(st.integers(1, 20000), st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))), min_size=1, max_size=3
).map(lambda shapes: Layout.of((f"s{i}", size, bound) for i, (size, bound) in enumerate(shapes)))


@pytest.mark.parametrize(
    ("parameters", "changes", "message"),
    [
        (BFV, {"degree": 2048}, "ring degree"),
        (BFV, {"prime_bits": (60, 60)}, "128-bit secure up to 109"),
        (BFV, {"degree": 8192, "prime_bits": (60, 60, 60)}, "128-bit secure up to 218"),
        (BFV, {"prime_bits": (55,)}, "steps of 4"),
        (BFV, {"prime_bits": ()}, "steps of 4"),
        (BFV, {"prime_bits": (64,)}, "28 to 60"),
        (BFV, {"plain_modulus": BFV.plain_modulus + 1}, "prime"),
        (BFV, {"plain_modulus": largest_prime_below(4096, 2**61)}, "at most 60 bits"),
        (BFV, {"slot_bound": BFV.plain_modulus // 2 + 1}, "slot_load|plain modulus above"),
        (BFV, {"slot_bound": BFV.plain_modulus, "slot_load": 2**60}, "plain modulus above"),
        (BFV, {"plain_modulus": largest_prime_below(4096, 2**52)}, "only proven"),
        (BFV, {"n_clients": 10**6}, "only proven"),
        (BFV, {"scale_bits": 3}, "no scale"),
        (CKKS, {"scale_bits": CKKS.scale_bits - 10}, "only proven"),
        (CKKS, {"scale_bits": CKKS.scale_bits + 2}, "need a modulus"),
        (CKKS, {"slot_bound": CKKS.slot_bound * 4, "slot_load": 2**40}, "need a modulus"),
        (CKKS, {"slot_load": 2**50}, "only proven"),
        (CKKS, {"plain_modulus": 5}, "no plain modulus"),
        (CKKS, {"scale_bits": 0}, "scale of at least"),
        (CKKS, {"scheme": "bgv"}, "'ckks' or 'bfv'"),
        (CKKS, {"n_clients": 0}, "n_clients >= 1"),
        (CKKS, {"slot_bound": 0}, "slot_bound"),
    ],
)
def test_a_change_for_the_worse_is_refused(
    parameters: EncryptionParameters, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        replace(parameters, **changes)  # type: ignore[arg-type]


@given(layout=layouts, n_clients=st.integers(1, 2**20), masked=st.booleans(), scheme=st.sampled_from(["bfv", "ckks"]))
@settings(max_examples=15)
def test_every_choice_is_safe_and_carries_its_layout(
    layout: Layout, n_clients: int, masked: bool, scheme: SchemeName
) -> None:
    chosen = choose_parameters(layout, n_clients, scheme=scheme, masked=masked)
    assert sum(chosen.all_prime_bits) <= MAX_MODULUS_BITS[chosen.degree]
    assert chosen.error_bound <= MARGIN < 0.5
    carried = VectorCipher(layout=layout, parameters=chosen, n_clients=n_clients, masked=masked)
    assert carried.plan.needed_bound <= chosen.slot_bound
    assert carried.upload_bytes == best_cipher(layout, n_clients, scheme=scheme, masked=masked).upload_bytes


def every_ring() -> tuple[Ring, ...]:
    """Each degree with each modulus of up to 100 bits that it is secure with: as few primes as equal as possible."""
    rings = []
    for degree in (4096, 8192, 16384):
        for bits in range(32, min(100, MAX_MODULUS_BITS[degree] - SPECIAL_PRIME_BITS) + 1, 4):
            count = -(-bits // 60)
            small, larger = divmod(bits // 4, count)
            sizes = tuple(4 * (small + (place < larger)) for place in range(count))
            rings.append(Ring(degree=degree, prime_bits=sizes))
    return tuple(rings)


@given(layout=layouts, n_clients=st.integers(1, 2**20), masked=st.booleans(), scheme=st.sampled_from(["bfv", "ckks"]))
@settings(max_examples=15)
def test_the_table_gives_what_a_search_of_all_rings_finds(
    layout: Layout, n_clients: int, masked: bool, scheme: SchemeName
) -> None:
    chosen = choose_parameters(layout, n_clients, scheme=scheme, masked=masked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cipher, "RINGS", every_ring())
        searched = best_cipher.__wrapped__(layout, n_clients, scheme=scheme, masked=masked)
    assert chosen == searched.parameters
    assert set(RINGS) < set(every_ring())


@given(layout=layouts, n_clients=st.integers(2, 5000))
@settings(max_examples=15)
def test_the_choice_is_never_the_larger_scheme_unless_that_one_tells_carries(layout: Layout, n_clients: int) -> None:
    best = {name: best_cipher(layout, n_clients, scheme=name) for name in ("bfv", "ckks")}
    free = best_cipher(layout, n_clients)
    assert free.upload_bytes == min(c.upload_bytes for c in best.values() if c.reveals_carries == free.reveals_carries)
    assert free.reveals_carries == all(c.reveals_carries for c in best.values())


def test_sums_that_fit_a_slot_tell_the_key_holder_the_total_only() -> None:
    for bits in range(8, 58):
        found = best_cipher(Layout.of([("s", 100, 2**bits)]), 20, scheme="bfv")
        assert not found.reveals_carries, bits


def test_the_explanation_names_choice_probability_and_bytes() -> None:
    text, chosen = explain_choice(LAYOUT, 50), best_cipher(LAYOUT, 50)
    for part in ("chosen: bfv", "passed over: ckks", f"{chosen.upload_bytes} bytes", f"2^-{FAILURE_BITS}"):
        assert part in text


def test_two_choices_never_share_their_canonical_bytes() -> None:
    choices = [BFV, CKKS, replace(BFV, n_clients=49), replace(CKKS, scale_bits=CKKS.scale_bits - 1)]
    assert len({choice.canonical() for choice in choices}) == len(choices)


def test_a_cohort_that_nothing_carries_is_refused() -> None:
    for scheme in ("bfv", "ckks", None):
        with pytest.raises(ConfigurationError, match="no parameters carry the exact sum of"):
            choose_parameters(LAYOUT, 2**62, scheme=scheme)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["bfv", "ckks"])
def test_more_slots_than_the_failure_bound_counts_are_refused(scheme: SchemeName) -> None:
    wide = choose_parameters(Layout.of([("s", 1, 1)]), 2, scheme=scheme)
    most = Layout.of((f"s{place}", 2**32, 1) for place in range(256))
    assert VectorCipher(layout=most, parameters=wide, n_clients=2).plan.n_slots == MAX_SLOTS
    beyond = Layout.of([*((f"s{place}", 2**32, 1) for place in range(256)), ("one more", 1, 1)])
    with pytest.raises(ConfigurationError, match=f"counts {MAX_SLOTS} slots, these vectors take {MAX_SLOTS + 1}"):
        VectorCipher(layout=beyond, parameters=wide, n_clients=2)
