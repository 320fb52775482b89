"""The parameters that move the fewest bytes for an exact sum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from secagg.encryption.digits import DigitPlan
from secagg.encryption.noise import FAILURE_BITS, MARGIN, bfv_noise, ckks_noise, transform_error
from secagg.encryption.parameters import (
    MAX_MODULUS_BITS,
    MAX_PRIME_BITS,
    SPECIAL_PRIME_BITS,
    EncryptionParameters,
    Scheme,
    largest_prime_below,
    seal_primes,
)
from secagg.errors import ConfigurationError
from secagg.layout import Layout

SCHEMES: tuple[Scheme, ...] = ("bfv", "ckks")
DEGREES = (4096, 8192, 16384)
MAX_CIPHERTEXT_MODULUS_BITS = 100
"""More never pays: neither a 60-bit plain modulus nor a 53-bit float has a use for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to carry a layout.

    Args:
        parameters: scheme, ring, moduli.
        plan: the digits.
    """

    parameters: EncryptionParameters
    plan: DigitPlan

    @property
    def n_ciphertexts(self) -> int:
        """Ciphertexts of one vector."""
        return -(-self.plan.n_slots // self.parameters.slots)

    @property
    def upload_bytes(self) -> int:
        """Bytes of one encrypted vector."""
        return self.n_ciphertexts * self.parameters.ciphertext_bytes

    @property
    def tells_carries(self) -> bool:
        """Whether who decrypts sees sums of digits of unmasked entries, and so a little more than the total."""
        return not self.plan.masked and any(digits.count > 1 for digits in self.plan.digits)

    def explain(self) -> str:
        """Three lines for people."""
        digits = ", ".join(
            f"{s.name} {digits.count} x {digits.bits} bits"
            for s, digits in zip(self.plan.layout.segments, self.plan.digits, strict=True)
        )
        per_entry = self.upload_bytes / self.plan.layout.size
        seen = "the total and how often its digits carried" if self.tells_carries else "the total only"
        return (
            f"{self.parameters.explain()}\n  {self.n_ciphertexts} ciphertexts, {self.upload_bytes} bytes a client "
            f"({per_entry:.1f} an entry; plain {self.plan.layout.wire_bytes}); digits: {digits};\n"
            f"  the key holder decrypts {'masked words' if self.plan.masked else seen}"
        )


def choose_parameters(
    layout: Layout, n_clients: int, *, scheme: Scheme | None = None, masked: bool = False
) -> EncryptionParameters:
    """The parameters with the smallest upload that carry the layout's sum exactly.

    Args:
        layout: the vectors.
        n_clients: the largest cohort.
        scheme: only this one; None compares both.
        masked: for ring words under masks, which are uniform, instead of integers within their bounds.
    """
    return best_candidate(layout, n_clients, scheme=scheme, masked=masked).parameters


@lru_cache(maxsize=64)  # a site asks at every message of a run
def best_candidate(layout: Layout, n_clients: int, *, scheme: Scheme | None = None, masked: bool = False) -> Candidate:
    """The candidate with the smallest upload among those that tell the key holder the total and nothing else.

    If there is none (sums too wide for one slot), the smallest upload; among equals the smaller ring.

    Raises:
        ConfigurationError: no candidate carries it.
    """
    schemes = SCHEMES if scheme is None else (scheme,)
    found = [c for name in schemes for c in _candidates(layout, n_clients, scheme=name, masked=masked)]
    if not found:
        raise ConfigurationError(
            f"no parameters carry the exact sum of {n_clients} clients in this layout; lower the bounds or the cohort"
        )
    return min(found, key=_preference)


def explain_choice(layout: Layout, n_clients: int) -> str:
    """Both schemes' best parameters side by side, for people: the choice, its margin and its bytes."""
    best = [best_candidate(layout, n_clients, scheme=name) for name in SCHEMES]
    chosen = min(best, key=_preference)
    lines = [f"{'chosen' if c is chosen else 'passed over'}: {c.explain()}" for c in best]
    rest = f"errors must be proven below {MARGIN} (rounding fails at 0.5), but for a probability of 2^-{FAILURE_BITS}"
    return "\n".join([*lines, rest])


def _preference(candidate: Candidate) -> tuple[bool, int, int]:
    return candidate.tells_carries, candidate.upload_bytes, candidate.parameters.degree


def _candidates(layout: Layout, n_clients: int, *, scheme: Scheme, masked: bool) -> Iterator[Candidate]:
    for degree in DEGREES:
        most = min(MAX_CIPHERTEXT_MODULUS_BITS, MAX_MODULUS_BITS[degree] - SPECIAL_PRIME_BITS)
        for bits in range(32, most + 1, 4):
            candidate = _candidate(layout, n_clients, scheme, degree, _prime_sizes(bits), masked)
            if candidate is not None:
                yield candidate


def _prime_sizes(bits: int) -> tuple[int, ...]:
    """As few sizes as possible, multiples of 4, as equal as possible, that add up to ``bits``."""
    count = -(-bits // MAX_PRIME_BITS)
    small, larger = divmod(bits // 4, count)
    return tuple(4 * (small + (place < larger)) for place in range(count))


def _candidate(
    layout: Layout, n_clients: int, scheme: Scheme, degree: int, sizes: tuple[int, ...], masked: bool
) -> Candidate | None:
    find = _bfv if scheme == "bfv" else _ckks
    *primes, special = seal_primes(degree, sizes)
    try:
        found = find(layout, n_clients, degree, special, math.prod(primes), masked)
        if found is None:
            return None
        plan, plain_modulus, scale_bits = found
        parameters = EncryptionParameters(
            scheme=scheme,
            degree=degree,
            prime_bits=sizes,
            n_clients=n_clients,
            slot_bound=plan.needed_bound,
            slot_load=plan.needed_load,
            plain_modulus=plain_modulus,
            scale_bits=scale_bits,
        )
    except ConfigurationError:
        return None
    return Candidate(parameters=parameters, plan=plan)


def _bfv(
    layout: Layout, n_clients: int, degree: int, special: int, modulus: int, masked: bool
) -> tuple[DigitPlan, int, int] | None:
    """The largest plain modulus that the margin allows, so that broken bounds show rather than wrap, and its digits."""
    noise = bfv_noise(degree=degree, special_prime=special, n_clients=n_clients)
    t = largest_prime_below(degree, min(math.floor(modulus * MARGIN / noise * (1 - 1e-9)), 1 << MAX_PRIME_BITS))
    if t is None:
        return None
    bound = (t - 1) // 2
    plan = DigitPlan(layout=layout, n_clients=n_clients, slot_bound=bound, slot_load=n_clients * t, masked=masked)
    return plan, t, 0


def _ckks(
    layout: Layout, n_clients: int, degree: int, special: int, modulus: int, masked: bool
) -> tuple[DigitPlan, int, int]:
    """The widest digits at a scale that gives half of the margin to noise, and then the largest scale for them."""
    noise = ckks_noise(degree=degree, special_prime=special, n_clients=n_clients)
    room = modulus // 4 - math.ceil(noise) - 1
    plan = DigitPlan(
        layout=layout,
        n_clients=n_clients,
        slot_bound=room >> math.ceil(math.log2(2 * noise / MARGIN)),
        slot_load=math.floor(MARGIN / 2 / transform_error(degree=degree, slot_load=1)),
        masked=masked,
    )
    return plan, 0, (room // plan.needed_bound).bit_length() - 1
