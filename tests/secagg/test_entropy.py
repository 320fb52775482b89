"""Sources of secret bytes."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from secagg.entropy import InsecureSeededEntropy


@given(st.integers(0, 2**64), st.text(max_size=10), st.lists(st.integers(0, 200), max_size=10))
def test_a_seeded_stream_does_not_depend_on_how_it_is_drawn(seed: int, label: str, pieces: list[int]) -> None:
    in_pieces, at_once = InsecureSeededEntropy(seed, label), InsecureSeededEntropy(seed, label)
    assert b"".join(in_pieces(n) for n in pieces) == at_once(sum(pieces))


def test_the_seeded_stream_is_what_it_says() -> None:
    prefix = hashlib.sha256(b"insecure-seeded-entropy/7/label").digest()
    blocks = [hashlib.sha256(prefix + i.to_bytes(8, "big")).digest() for i in range(3)]
    assert InsecureSeededEntropy(7, "label")(80) == b"".join(blocks)[:80]


@given(st.tuples(st.integers(0, 99), st.text(max_size=4)), st.tuples(st.integers(0, 99), st.text(max_size=4)))
def test_other_seeds_and_labels_give_other_streams(one: tuple[int, str], other: tuple[int, str]) -> None:
    assert (InsecureSeededEntropy(*one)(32) == InsecureSeededEntropy(*other)(32)) == (one == other)


def test_the_unsafe_one_says_so_and_hides_its_state() -> None:
    entropy = InsecureSeededEntropy(123456789)
    drawn = entropy(40)
    assert "Insecure" in type(entropy).__name__
    for secret in (drawn[:8], entropy._prefix[:8]):
        assert secret.hex() not in repr(entropy)
        assert repr(secret)[2:-1] not in repr(entropy)
