"""Faulty masks are noticed by the attacks that are made for them, and honest ones are not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from support.faulty_sums import Drawing, faulty
from support.mask_faults import DICE, MASK_FAULTS, WORDS, WORLDS, MaskFault, with_fault

from secagg import PartyId, SumProtocol, os_entropy
from secagg.entropy import Entropy
from simulations.audit.attack import MASKED, SentAttack
from simulations.audit.attacks import mask_words
from simulations.audit.workbench import Bench


def wide(bench: Bench) -> Bench:
    """A bench with as many clients as it takes to tell a coin from luck."""
    return replace(bench, clients=22)


@pytest.mark.parametrize("fault", MASK_FAULTS, ids=lambda fault: fault.name)
def test_every_named_attack_catches_the_fault_of_masks_and_is_silent_without(bench: Bench, fault: MaskFault) -> None:
    runs = wide(bench).runs(MASKED)
    for attack in fault.caught_by:
        spoiled = [(cohort, with_fault(recorded, fault)) for cohort, recorded in runs]
        assert attack.against_messages(bench, spoiled).leaked
        assert not attack.against_messages(bench, runs).leaked


@pytest.mark.slow
@pytest.mark.parametrize("attack", [DICE, WORLDS, WORDS], ids=lambda attack: attack.name)
def test_honest_masks_raise_no_alarm(bench_of: Callable[[int], Bench], attack: SentAttack) -> None:
    for seed in range(2, 22):
        bench = wide(bench_of(seed))
        assert not attack.against_messages(bench, bench.runs(MASKED)).leaked


@pytest.mark.parametrize("draw", ["masking key", "self-mask"])
def test_keys_and_seeds_that_are_drawn_out_of_few_come_again(monkeypatch: pytest.MonkeyPatch, draw: str) -> None:
    """Out of 64 in 30 sums, as out of 2^16 in 600: masks themselves repeat nothing then."""
    monkeypatch.setattr(mask_words, "SMALL_SUMS", 30)

    def out_of_few(protocol: SumProtocol, party: PartyId, entropy: Entropy) -> Entropy:
        numbers, place = count(), ["sealing key", "masking key", "self-mask"].index(draw)

        def drawn(n_bytes: int) -> bytes:
            fresh = entropy(n_bytes)
            few = hashlib.sha256(bytes([fresh[0] % 64])).digest()[:n_bytes]
            return few if next(numbers) == place and party == 2 else fresh

        return drawn

    score = mask_words._of_small_sums(faulty("masked", Drawing(out_of_few)), os_entropy)
    assert (score.hits, score.leaked) == (1, True)
    assert mask_words._of_small_sums(MASKED, os_entropy).hits == 0
