"""Residues survive the wire, add modulo each prime, and refuse what is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.encryption import EncryptionParameters
from secagg.encryption.cipher import CiphertextSum, Residues, pack, unpack
from secagg.errors import MalformedMessageError


def parameters_with(*prime_bits: int) -> EncryptionParameters:
    """Some valid parameters with primes of these sizes."""
    return EncryptionParameters(
        scheme="bfv", degree=8192, prime_bits=prime_bits, n_clients=3, slot_bound=5, slot_load=15, plain_modulus=65537
    )


def random_ciphertext(parameters: EncryptionParameters, rng: np.random.Generator) -> Residues:
    """Uniform residues, with the largest and the smallest among them."""
    planes = [rng.integers(0, prime, (2, parameters.degree), dtype=np.uint64) for prime in parameters.primes]
    for plane, prime in zip(planes, parameters.primes, strict=True):
        plane[0, 0], plane[1, -1] = prime - 1, 0
    return np.stack(planes, axis=1)


sizes = st.lists(st.sampled_from([36, 40, 44, 48, 52, 56, 60]), min_size=1, max_size=2)


@given(bits=sizes, seed=st.integers(0, 2**32))
@settings(max_examples=10)
def test_packing_is_reversible_and_takes_the_primes_bits(bits: list[int], seed: int) -> None:
    parameters = parameters_with(*bits)
    ciphertext = random_ciphertext(parameters, np.random.default_rng(seed))
    packed = pack(ciphertext, parameters)
    assert len(packed) == parameters.ciphertext_bytes == 2 * 8192 * sum(bits) // 8
    assert unpack(memoryview(packed), parameters).tobytes() == ciphertext.tobytes()


@given(bits=sizes, seed=st.integers(0, 2**32))
@settings(max_examples=5)
def test_sums_are_modulo_each_prime(bits: list[int], seed: int) -> None:
    parameters, rng = parameters_with(*bits), np.random.default_rng(seed)
    uploads = [[random_ciphertext(parameters, rng) for _ in range(2)] for _ in range(3)]
    total = CiphertextSum(parameters, 2)
    for upload in uploads:
        total.add(b"".join(pack(c, parameters) for c in upload))
    assert total.count == 3
    expected = b""
    for place in range(2):
        parts = [sum(u[place][:, i, :].astype(object) for u in uploads) % p for i, p in enumerate(parameters.primes)]
        expected += pack(np.stack(parts, axis=1).astype(np.uint64), parameters)
    assert total.to_bytes() == expected


def test_what_is_no_encrypted_vector_is_refused_and_changes_nothing() -> None:
    parameters, rng = parameters_with(52), np.random.default_rng(0)
    good = pack(random_ciphertext(parameters, rng), parameters)
    total = CiphertextSum(parameters, 1)
    total.add(good, peer=7)
    before = total.to_bytes()
    size = parameters.ciphertext_bytes
    bad = {
        "1 ciphertexts of": [b"", good[:-1], good + b"\0", good * 2],
        "beyond its modulus": [b"\xff" * size, good[: size // 2] + b"\xff" * (size - size // 2)],
        "a copy": [good],
    }
    for message, uploads in bad.items():
        for upload in uploads:
            with pytest.raises(MalformedMessageError, match=message) as caught:
                total.add(upload, peer=7)
            assert caught.value.peer == 7
    assert (total.to_bytes(), total.count) == (before, 1)


def test_more_vectors_than_the_parameters_carry_are_refused() -> None:
    parameters, rng = parameters_with(40), np.random.default_rng(1)
    total = CiphertextSum(parameters, 1)
    for _ in range(3):
        total.add(pack(random_ciphertext(parameters, rng), parameters))
    with pytest.raises(MalformedMessageError, match="carry 3 vectors"):
        total.add(pack(random_ciphertext(parameters, rng), parameters))
