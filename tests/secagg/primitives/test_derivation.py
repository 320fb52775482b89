"""Key derivation: labels and contexts keep purposes apart; its bytes: ``tests/secagg/test_published_vectors.py``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from secagg.primitives.derivation import derive_key

parts = st.lists(st.binary(max_size=6), max_size=4)


@given(parts, parts)
def test_other_contexts_give_other_keys(one: list[bytes], other: list[bytes]) -> None:
    secret = bytes(32)
    assert (derive_key(secret, "label", *one) == derive_key(secret, "label", *other)) == (one == other)


def test_bytes_cannot_move_between_parts() -> None:
    keys = {derive_key(bytes(32), label, *context) for label, *context in [
        ("ab", b"c"), ("a", b"bc"), ("abc",), ("abc", b""), ("", b"abc"), ("a", b"b", b"c"), ("a", b"", b"bc"),
    ]}  # fmt: skip
    assert len(keys) == 7
