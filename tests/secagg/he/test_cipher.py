"""What was encrypted, added and decrypted is the exact sum, and its error stays below the proven bound."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.extras import needs

from secagg.encryption import EncryptionParameters, choose_parameters, generate_contexts
from secagg.encryption.cipher import VectorCipher
from secagg.encryption.rings import largest_prime_below
from secagg.encryption.schemes import SchemeName
from secagg.encryption.seal import ContextPair
from secagg.errors import MalformedMessageError, SumOutOfBoundsError
from secagg.layout import Layout
from secagg.ring import RingVector

needs("tenseal")

both = pytest.mark.parametrize("scheme", ["bfv", "ckks"])


@lru_cache(maxsize=64)
def keys_for(parameters: EncryptionParameters) -> ContextPair:
    """One key pair for each choice: a test may reuse what a session may not."""
    return generate_contexts(parameters)


def cipher_for(layout: Layout, n_clients: int, scheme: SchemeName, *, masked: bool = False) -> VectorCipher:
    """The cipher with the best parameters."""
    parameters = choose_parameters(layout, n_clients, scheme=scheme, masked=masked)
    return VectorCipher(layout=layout, parameters=parameters, n_clients=n_clients, masked=masked)


def encrypted_sum(cipher: VectorCipher, vectors: list[RingVector]) -> bytes:
    """Encrypt each, add all."""
    total, keys = cipher.empty_sum(), keys_for(cipher.parameters)
    for vector in vectors:
        upload = cipher.encrypt(vector, keys.public_context)
        assert len(upload) == cipher.upload_bytes
        total.add(upload)
    return total.to_bytes()


def check_sum(cipher: VectorCipher, vectors: list[RingVector]) -> float:
    """Assert that the decrypted total is exact, and return its error."""
    expected = RingVector.zeros(cipher.layout)
    for vector in vectors:
        expected.add(vector)
    decrypted = cipher.decrypt(encrypted_sum(cipher, vectors), keys_for(cipher.parameters).secret_context)
    assert decrypted.vector.to_bytes() == expected.to_bytes()
    return decrypted.error


def random_words(layout: Layout, rng: np.random.Generator) -> RingVector:
    """Uniform ring words, as masks make them."""
    return RingVector.from_bytes(layout, rng.bytes(layout.wire_bytes))


def extreme_integers(layout: Layout, n_clients: int, sign: int) -> RingVector:
    """Every entry at a client's share of the bound."""
    parts = [np.full(s.size, sign * (s.bound // n_clients), dtype=np.int64) for s in layout.segments]
    return RingVector.encode(layout, np.concatenate(parts))


layouts = st.lists(
    st.tuples(st.integers(1, 40), st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))), min_size=1, max_size=3
).map(lambda shapes: Layout.of((f"s{i}", size, bound) for i, (size, bound) in enumerate(shapes)))


@both
@given(layout=layouts, declared=st.integers(1, 300), came=st.integers(1, 5), seed=st.integers(0, 2**32))
@settings(max_examples=8)
def test_masked_words_add_up_exactly(scheme: SchemeName, layout: Layout, declared: int, came: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cipher = cipher_for(layout, max(declared, came), scheme, masked=True)
    check_sum(cipher, [random_words(layout, rng) for _ in range(came)])


@both
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sign", [-1, 1])
def test_extremes_of_a_whole_cohort_stay_within_the_proven_error(scheme: SchemeName, masked: bool, sign: int) -> None:
    n = 24
    layout = Layout.of([("wide", 300, 2**47), ("narrow", 3000, 2**20), ("full", 5, 2**63 - 1)])
    cipher = cipher_for(layout, n, scheme, masked=masked)
    if masked:
        byte = b"\x7f" if sign > 0 else b"\x80"
        vectors = [RingVector.from_bytes(layout, byte * layout.wire_bytes)] * n
    else:
        vectors = [extreme_integers(layout, n, sign)] * n
    assert report(cipher, check_sum(cipher, vectors)) < 0.5


@both
def test_every_slot_at_its_bound(scheme: SchemeName) -> None:
    """All slots of a ciphertext equal and extreme: the one message whose coefficients are as large as its slots."""
    n = 16
    layout = Layout.of([("s", 4096, n * (2**25 - 1))])
    cipher = cipher_for(layout, n, scheme)
    vectors = [RingVector.encode(layout, np.full(4096, sign * (2**25 - 1))) for sign in [1] * n]
    assert report(cipher, check_sum(cipher, vectors)) < 0.5


@pytest.mark.slow
@both
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n", [100, 1000])
def test_large_cohorts_stay_within_the_proven_error(scheme: SchemeName, masked: bool, n: int) -> None:
    layout = Layout.of([("gram", 3000, 2**45), ("cross", 1000, 2**31 - 1), ("count", 3, 2**17)])
    cipher = cipher_for(layout, n, scheme, masked=masked)
    rng = np.random.default_rng()
    bounds = np.concatenate([np.full(s.size, s.bound // n, dtype=np.int64) for s in layout.segments])
    if masked:
        vectors = [random_words(layout, rng) for _ in range(n)]
    else:
        vectors = [RingVector.encode(layout, rng.integers(-bounds, bounds, endpoint=True)) for _ in range(n)]
    assert report(cipher, check_sum(cipher, vectors)) < 0.5


def report(cipher: VectorCipher, error: float) -> float:
    """Show the observed error next to its bound; the bound, if the observation is below it."""
    bound = cipher.parameters.error_bound
    # SEAL tells the BFV noise budget in whole bits, so an error below the bound may show as up to twice of it.
    slack = 2 if cipher.parameters.scheme == "bfv" else 1
    print(f"{cipher.parameters.scheme}: observed digit error {error:.2e}, proven bound {bound:.2e}")
    assert 0 < error <= slack * bound
    return bound


@both
@pytest.mark.parametrize("degree", [4096, 8192, 16384])
def test_all_degrees_and_several_primes_work(scheme: SchemeName, degree: int) -> None:
    """Degrees that the choice takes for few layouts only."""
    layout, n = Layout.of([("s", 50, 2**22)]), 3
    best = choose_parameters(layout, n, scheme=scheme)
    parameters = replace(
        best,
        degree=degree,
        prime_bits=(32, 36),
        scale_bits=34 if scheme == "ckks" else 0,
        plain_modulus=largest_prime_below(degree, 2**25) or 0 if scheme == "bfv" else 0,
    )
    cipher = VectorCipher(layout=layout, parameters=parameters, n_clients=n)
    vectors = [extreme_integers(layout, n, sign) for sign in (-1, 1, 1)]
    assert report(cipher, check_sum(cipher, vectors)) < 0.5


@both
class TestRefusals:
    LAYOUT = Layout.of([("s", 30, 2**30)])

    def test_ciphertexts_under_another_key_do_not_decrypt(self, scheme: SchemeName) -> None:
        cipher = cipher_for(self.LAYOUT, 3, scheme)
        other = generate_contexts(cipher.parameters)
        total = cipher.empty_sum()
        vector = extreme_integers(self.LAYOUT, 3, 1)
        total.add(cipher.encrypt(vector, keys_for(cipher.parameters).public_context))
        total.add(cipher.encrypt(vector, other.public_context))
        for keys in (other, keys_for(cipher.parameters)):
            with pytest.raises(SumOutOfBoundsError, match="another key"):
                cipher.decrypt(total.to_bytes(), keys.secret_context)

    @given(seed=st.integers(0, 2**32))
    @settings(max_examples=10)
    def test_any_residues_are_decrypted_or_refused_without_a_crash(self, scheme: SchemeName, seed: int) -> None:
        rng = np.random.default_rng(seed)
        cipher = cipher_for(self.LAYOUT, 3, scheme)
        good = encrypted_sum(cipher, [extreme_integers(self.LAYOUT, 3, 1)])
        mutated = bytearray(good)
        for place in rng.integers(0, len(mutated), size=int(rng.integers(1, 2000))):
            mutated[place] = int(rng.integers(0, 256))
        with pytest.raises((SumOutOfBoundsError, MalformedMessageError)):
            cipher.decrypt(bytes(mutated), keys_for(cipher.parameters).secret_context)

    def test_a_cohort_that_breaks_its_bound_is_noticed_where_slots_have_room(self, scheme: SchemeName) -> None:
        layout = Layout.of([("s", 30, 2**26)])
        cipher = cipher_for(layout, 3, scheme)
        assert scheme == "ckks" or cipher.parameters.plain_modulus > 4 * 2**26
        encrypted = encrypted_sum(cipher, [extreme_integers(layout, 1, 1)] * 2)
        with pytest.raises(SumOutOfBoundsError, match="bound"):
            cipher.decrypt(encrypted, keys_for(cipher.parameters).secret_context)

    def test_an_unsafe_choice_that_was_forced_is_noticed(self, scheme: SchemeName) -> None:
        """The proof is not vacuous: past its limit sums do go wrong, and the noise budget says so."""
        unsafe = replace(choose_parameters(self.LAYOUT, 3, scheme=scheme))
        if scheme == "ckks":
            object.__setattr__(unsafe, "scale_bits", 8)
        else:
            object.__setattr__(unsafe, "prime_bits", (60,))
            object.__setattr__(unsafe, "plain_modulus", largest_prime_below(4096, 2**55))
        forced = VectorCipher(layout=self.LAYOUT, parameters=unsafe, n_clients=3)
        assert unsafe.error_bound > 0.5
        keys, vector = generate_contexts(unsafe), extreme_integers(self.LAYOUT, 3, 1)
        upload = forced.encrypt(vector, keys.public_context)
        if scheme == "bfv":
            with pytest.raises(SumOutOfBoundsError):
                forced.decrypt(upload, keys.secret_context)
        else:
            # The bound is above 1/2 as well, so nothing is refused; the integers are wrong.
            assert forced.decrypt(upload, keys.secret_context).vector.to_bytes() != vector.to_bytes()

    def test_two_encryptions_of_one_vector_differ(self, scheme: SchemeName) -> None:
        cipher = cipher_for(self.LAYOUT, 3, scheme)
        vector, key = extreme_integers(self.LAYOUT, 3, 1), keys_for(cipher.parameters).public_context
        assert cipher.encrypt(vector, key) != cipher.encrypt(vector, key)
