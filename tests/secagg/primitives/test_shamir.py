"""Secret sharing: enough shares give the secret, one fewer tells nothing, over a field that is one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pytest
from flint import fmpz
from hypothesis import given
from hypothesis import strategies as st

from secagg.entropy import InsecureSeededEntropy, os_entropy
from secagg.primitives.shamir import (
    PRIME,
    SHARE_BYTES,
    BadSharesError,
    Interpolation,
    combine,
    decode,
    is_share,
    split,
    without_one,
)

secrets = st.one_of(st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32, bytes(31) + b"\1"]))
point_sets = st.lists(st.integers(1, 2**32), min_size=1, max_size=8, unique=True)


def interpolate(points: dict[int, int], at: int) -> int:
    """The value at ``at`` of the one polynomial of least degree through these points: plain Lagrange, by hand."""
    total = 0
    for x, y in points.items():
        weight = y
        for other in points:
            if other != x:
                weight = weight * (at - other) * pow(x - other, PRIME - 2, PRIME) % PRIME
        total += weight
    return total % PRIME


def numbers(shares: dict[int, bytes]) -> dict[int, int]:
    """Shares as field elements."""
    return {point: int.from_bytes(share, "big") for point, share in shares.items()}


def test_the_field_is_a_field_and_the_smallest_that_holds_every_secret() -> None:
    assert PRIME == 2**256 + 297
    assert fmpz(PRIME).is_prime()  # FLINT proves it
    assert not any(fmpz(n).is_prime() for n in range(2**256, PRIME))
    assert SHARE_BYTES == 33


@given(secrets, point_sets, st.data())
def test_any_threshold_of_shares_gives_the_secret(secret: bytes, points: list[int], data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, len(points)))
    shares = split(secret, threshold=threshold, points=points, entropy=os_entropy)
    assert list(shares) == points
    assert all(len(share) == SHARE_BYTES for share in shares.values())
    for chosen in itertools.islice(itertools.combinations(points, threshold), 20):
        assert combine({point: shares[point] for point in chosen}) == secret


@given(secrets, st.lists(st.integers(1, 2**20), min_size=2, max_size=8, unique=True), st.data())
def test_more_shares_than_the_threshold_lie_on_the_same_polynomial(
    secret: bytes, points: list[int], data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, len(points) - 1))
    shares = split(secret, threshold=threshold, points=points, entropy=os_entropy)
    assert combine(shares) == secret
    first = {p: v for p, v in numbers(shares).items() if p in points[:threshold]}
    for point in points[threshold:]:
        assert interpolate(first, point) == int.from_bytes(shares[point], "big")


@given(secrets, secrets, st.lists(st.integers(1, 2**20), min_size=2, max_size=7, unique=True), st.data())
def test_one_share_fewer_fits_every_secret(
    secret: bytes, candidate: bytes, points: list[int], data: st.DataObject
) -> None:
    """Perfect secrecy, algebraically: for *any* candidate there is one polynomial of the right degree, through the
    candidate at 0, that gives exactly the shares the coalition holds. One each, so all candidates stay equally likely.
    """
    threshold = data.draw(st.integers(2, len(points)))
    shares = split(secret, threshold=threshold, points=points, entropy=os_entropy)
    held = {p: v for p, v in numbers(shares).items() if p in points[: threshold - 1]}
    through_candidate = held | {0: int.from_bytes(candidate, "big")}
    other_shares = {
        point: interpolate(through_candidate, point).to_bytes(SHARE_BYTES, "big") for point in points[:threshold]
    }
    assert all(other_shares[point] == shares[point] for point in held)
    assert combine(other_shares) == candidate


def scripted(*draws: bytes) -> Callable[[int], bytes]:
    """Entropy that gives these bytes and refuses anything else."""
    left = list(draws)

    def entropy(n_bytes: int) -> bytes:
        drawn = left.pop(0)
        assert len(drawn) == n_bytes
        return drawn

    return entropy


def test_a_vector_small_enough_for_paper() -> None:
    """Secret 1234, coefficients 94 and 166 for x^2 and x or the other way round: the textbook's example."""
    secret = (1234).to_bytes(32, "big")
    draws = [n.to_bytes(49, "big") for n in (94, 166)]
    shares = numbers(split(secret, threshold=3, points=[1, 2, 3, 4, 5, 6], entropy=scripted(*draws)))
    assert shares == {x: 1234 + 166 * x + 94 * x * x for x in range(1, 7)}
    assert shares == {1: 1494, 2: 1942, 3: 2578, 4: 3402, 5: 4414, 6: 5614}


def test_a_vector_that_wraps() -> None:
    """Coefficient p - 1 draws as itself: f(x) = s - x, below zero for small s."""
    draws = [(PRIME - 1).to_bytes(49, "big")]
    shares = numbers(split(bytes(31) + b"\2", threshold=2, points=[1, 2, 3], entropy=scripted(*draws)))
    assert shares == {1: 1, 2: 0, 3: PRIME - 1}


def test_a_threshold_of_one_is_a_copy() -> None:
    secret = bytes(range(32))
    shares = split(secret, threshold=1, points=[3, 9], entropy=scripted())
    assert set(shares.values()) == {b"\0" + secret}


def test_coefficients_are_drawn_wide_enough_to_be_uniform() -> None:
    """The reduction's bias is at most 2^(256 - 8 bytes drawn), stated as 2^-128."""
    drawn: list[int] = []

    def entropy(n_bytes: int) -> bytes:
        drawn.append(n_bytes)
        return os_entropy(n_bytes)

    split(bytes(32), threshold=4, points=[1, 2, 3, 4], entropy=entropy)
    assert len(drawn) == 3
    assert all(8 * n_bytes >= PRIME.bit_length() + 127 for n_bytes in drawn)


@pytest.mark.parametrize(
    ("threshold", "points"),
    [(0, [1, 2]), (3, [1, 2]), (2, [1, 1]), (1, [0, 1]), (2, [-1, 1])],
)
def test_unsafe_sharings_are_refused(threshold: int, points: list[int]) -> None:
    with pytest.raises(ValueError, match="threshold"):
        split(bytes(32), threshold=threshold, points=points, entropy=os_entropy)


@pytest.mark.parametrize("points", [[1, PRIME], [1, PRIME + 1]], ids=["zero modulo p", "equal modulo p"])
def test_points_beyond_the_field_are_refused(points: list[int]) -> None:
    with pytest.raises(ValueError, match="point"):
        split(b"\1" * 32, threshold=2, points=points, entropy=os_entropy)


@pytest.mark.parametrize("length", [0, 31, 33, 40])
def test_secrets_of_another_length_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32"):
        split(b"\1" * length, threshold=2, points=[1, 2, 3], entropy=os_entropy)


def test_no_shares_have_no_secret() -> None:
    with pytest.raises(BadSharesError):
        combine({})


@pytest.mark.parametrize("share", [PRIME, PRIME + 1, 2**264 - 1])
def test_shares_outside_the_field_are_refused(share: int) -> None:
    shares = split(bytes(32), threshold=2, points=[1, 2], entropy=os_entropy)
    with pytest.raises(BadSharesError):
        combine(shares | {2: share.to_bytes(SHARE_BYTES, "big")})


@pytest.mark.parametrize("secret", [2**256, PRIME - 1])
def test_a_result_that_is_no_32_bytes_is_refused(secret: int) -> None:
    with pytest.raises(BadSharesError) as caught:
        combine({1: secret.to_bytes(SHARE_BYTES, "big")})
    assert str(secret) not in str(caught.value)


@given(secrets, st.integers(1, PRIME - 1), st.integers(2, 5))
def test_a_changed_share_changes_the_secret(secret: bytes, change: int, threshold: int) -> None:
    """Sharing does not authenticate; it never gives the old secret back unnoticed either."""
    points = list(range(1, threshold + 1))
    shares = split(secret, threshold=threshold, points=points, entropy=os_entropy)
    forged = (int.from_bytes(shares[1], "big") + change) % PRIME
    with contextlib.suppress(BadSharesError):
        assert combine(shares | {1: forged.to_bytes(SHARE_BYTES, "big")}) != secret


@given(secrets, point_sets, st.data())
def test_wrong_shares_within_the_spare_ones_are_found(secret: bytes, points: list[int], data: st.DataObject) -> None:
    """As long as they are at most half of the spare ones; whatever was written into them."""
    threshold = data.draw(st.integers(1, len(points)))
    shares = split(secret, threshold=threshold, points=points, entropy=os_entropy)
    spare = (len(points) - threshold) // 2
    wrong = data.draw(st.sets(st.sampled_from(points), max_size=spare))
    for point in wrong:
        change = data.draw(st.integers(1, PRIME - 1))
        shares[point] = ((numbers(shares)[point] + change) % PRIME).to_bytes(SHARE_BYTES, "big")
    assert decode(shares, threshold) == (secret, frozenset(wrong))


@given(secrets, st.lists(st.integers(1, 2**20), min_size=2, max_size=8, unique=True), st.data())
def test_one_spare_share_does_without_each_of_the_others(secret: bytes, points: list[int], data: st.DataObject) -> None:
    shares = split(secret, threshold=len(points) - 1, points=points, entropy=os_entropy)
    wrong = data.draw(st.sampled_from(points))
    shares[wrong] = bytes(SHARE_BYTES)
    found = dict(without_one(shares))
    assert found[wrong] == secret
    for point, other in found.items():
        assert other == combine({p: share for p, share in shares.items() if p != point})


@pytest.mark.parametrize(("n", "threshold", "wrong"), [(5, 3, 2), (6, 3, 2), (4, 4, 1), (9, 3, 4)])
def test_more_wrong_shares_are_refused_or_give_another_secret(n: int, threshold: int, wrong: int) -> None:
    """So the caller checks what it gets against what the secret is bound to."""
    shares = split(bytes(32), threshold=threshold, points=range(1, n + 1), entropy=InsecureSeededEntropy(7))
    for point in range(1, wrong + 1):
        shares[point] = (point * 1000).to_bytes(SHARE_BYTES, "big")
    with contextlib.suppress(BadSharesError):
        assert decode(shares, threshold)[0] != bytes(32)


def test_too_few_shares_are_not_decoded() -> None:
    shares = split(bytes(32), threshold=3, points=[1, 2, 3], entropy=os_entropy)
    del shares[2]
    with pytest.raises(BadSharesError, match="2 shares are fewer than the 3"):
        decode(shares, 3)


@given(point_sets, st.integers(0, 2**32))
def test_the_share_of_another_point_follows_from_enough(points: list[int], at: int) -> None:
    shares = split(b"\5" * 32, threshold=len(points), points=points, entropy=os_entropy)
    followed = Interpolation(points).share(list(shares.values()), at=at)
    assert int.from_bytes(followed, "big") == interpolate(numbers(shares), at)
    assert is_share(followed)
    assert not is_share(PRIME.to_bytes(SHARE_BYTES, "big"))
    assert not is_share(b"\0" * 32)
