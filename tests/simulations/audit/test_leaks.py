"""Runs whose truth is known: what leaks fails for that reason, the correct product passes, and sentences say so."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from support.faulty_sums import Client, FaultyMode, by_words, faulty, masking

from analytic_secagg.datasets import Dataset
from analytic_secagg.learners import LEARNERS
from analytic_secagg.modes import MODES, choose_modes
from analytic_secagg.session_config import SessionConfig
from secagg import Guarantee, MaskedSum, SumProtocol
from secagg.dp.noise import CoordinateNoise
from secagg.ring import RingVector
from simulations.audit.audit import audit
from simulations.audit.catalogue import choose_attacks
from simulations.audit.decide import Outcome, Verdict
from simulations.audit.record import Audit
from simulations.audit.settings import AuditSettings
from simulations.audit.two_worlds import Outcome as EpsilonOutcome
from simulations.report.audit_findings import sentences
from simulations.report.document import Mark

BAD = (Outcome.LEAK, Outcome.OVER, Outcome.NOT_DECIDED)


def audited(data: Dataset, *attacks: str, **options: Any) -> Audit:
    """A quick audit by a few attacks."""
    quick: dict[str, Any] = {"modes": choose_modes(["plain", "masked"]), "cohorts": (), "epsilon": (), "trials": 3}
    return audit(data, AuditSettings(attacks=choose_attacks(attacks), **(quick | options)))


def bad(report: Audit) -> set[tuple[str, str]]:
    """What is not as it should be: attack and exposure."""
    return {(one.attack, one.exposure) for one in report.results if one.outcome in BAD}


def said(report: Audit, *marks: Mark) -> list[str]:
    """The sentences with one of these marks."""
    return [sentence for mark, sentence in sentences(report) if mark in marks]


# What leaks


def test_a_small_cohort_under_random_features(digits: Dataset) -> None:
    found = audited(digits, "raw_rows", learner=LEARNERS["random"], clients=5, rows_per_client=8)
    assert found.decision is Verdict.FAILED
    assert bad(found) == {("raw_rows", "total of 5 clients"), ("raw_rows", "total of 4 clients")}
    result = found.result("raw_rows", "total of 5 clients")
    assert result is not None
    assert result.score is not None
    assert result.score.rate > 0.9
    wrong, _ = said(found, Mark.WRONG)
    assert wrong.startswith("Total of 5 clients")
    assert f"{result.hits} of {result.trials} rows come out exactly" in wrong
    assert "Do not release it" in wrong
    assert any(one.startswith("Messages (masked)") for one in said(found, Mark.FINE))


def test_a_class_of_one_row(digits: Dataset) -> None:
    keep = np.flatnonzero(digits.y_train != 3)
    kept = np.sort(np.append(keep, np.flatnonzero(digits.y_train == 3)[0]))
    alone = replace(digits, x_train=digits.x_train[kept], y_train=digits.y_train[kept])
    found = audited(alone, "lone_rows", clients=10, rows_per_client=30)  # three totals of four are without the row
    assert found.decision is Verdict.FAILED
    assert ("lone_rows", "total of 10 clients") in bad(found)
    wrong, *_ = said(found, Mark.WRONG)
    assert "1 of 1 rows come out exactly" in wrong


def test_columns_that_are_crafted_to_hold_one_row_each(digits: Dataset) -> None:
    """Of 64 further columns each is one in a narrow band of a random direction, and zero elsewhere."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=64)
    cuts = np.quantile(digits.x_train @ direction, np.linspace(0, 1, 1201))
    low = rng.permutation(1200)[:64]

    def crafted(rows: Any) -> Any:
        at = (rows @ direction)[:, None]
        return np.hstack([rows, 16.0 * ((at >= cuts[low]) & (at < cuts[low + 1]))])

    found = audited(replace(digits, x_train=crafted(digits.x_train), x_test=crafted(digits.x_test)), "peeling")
    assert found.decision is Verdict.FAILED
    assert ("peeling", "total of 20 clients") in bad(found)
    wrong, *_ = said(found, Mark.WRONG)
    assert "Total of 20 clients" in wrong
    assert "rows come out exactly" in wrong


def test_a_model_of_few_rows(digits: Dataset) -> None:
    found = audited(digits, "model_membership", "class_means", clients=5, rows_per_client=8)
    assert found.decision is Verdict.FAILED
    assert bad(found) == {("model_membership", "model of 5 clients"), ("model_membership", "model of 4 clients")}
    wrong, _ = said(found, Mark.WRONG)
    assert wrong.startswith("Model of 5 clients")
    assert "tells whether it was used" in wrong


def silent(client: Client, mask: RingVector) -> RingVector:
    """One client of the cohort sends its vector as it is."""
    return RingVector(mask.layout, [np.zeros_like(words) for words in mask.words]) if client.party == 3 else mask


def uncounted(client: Client, mask: RingVector) -> RingVector:
    """A mask that leaves out the shortest segment, of a few bytes."""
    named = zip(mask.layout.segments, mask.words, strict=True)
    return RingVector(mask.layout, [words * (segment.name != "count") for segment, words in named])


FAULTS = {
    "half of every mask is missing": lambda: by_words(lambda words: np.where(np.arange(len(words)) % 2, words, 0)),
    "masks are of 16 bits": lambda: by_words(lambda words: words & words.dtype.type(0xFFFF)),
    "a client is silent about its mask": lambda: masking(silent),
    "the number of rows is not masked": lambda: masking(uncounted),
}


@pytest.mark.parametrize("name", FAULTS)
def test_masks_with_a_fault(digits: Dataset, name: str) -> None:
    modes: tuple[FaultyMode, ...] = (faulty("masked", FAULTS[name]()),)
    found = audited(digits, "uniformity", "distinguishing", "class_means", modes=modes)
    assert found.decision is Verdict.FAILED
    assert any(one.outcome is Outcome.LEAK and one.exposure == "masked" for one in found.results)
    (wrong,) = said(found, Mark.WRONG)
    assert wrong.startswith("Messages: what must be hidden is not: masked")
    assert "Do not use this" in wrong


def test_a_mode_that_releases_a_total_of_two_clients(digits: Dataset) -> None:
    """Of a cohort of twenty, whose whole total shows nobody: the total that dropouts may leave decides too."""

    class OfTwo(MaskedSum):
        @property
        def guarantee(self) -> Guarantee:
            own: Guarantee = MaskedSum.guarantee.fget(self)  # type: ignore[attr-defined]
            return replace(own, min_survivors=2)

    def make(setup: SessionConfig) -> SumProtocol:
        honest: Any = MODES["masked"].make(setup)
        return OfTwo(**{own.name: getattr(honest, own.name) for own in fields(honest) if own.init})

    found = audited(digits, "membership", modes=(MODES["plain"], faulty("masked", make=make)))
    assert found.decision is Verdict.FAILED
    assert bad(found) == {("membership", "total of 2 clients")}
    (wrong,) = said(found, Mark.WRONG)
    assert re.match(r"Total of 2 clients \(\d+ rows, if all other clients drop out of 20\): over the limit", wrong)


def test_noise_of_half_the_scale(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CoordinateNoise.draw
    monkeypatch.setattr(CoordinateNoise, "draw", lambda *own, **more: honest(*own, **more) // 2)
    found = audited(digits, "class_means", modes=choose_modes(["masked"]), epsilon=(8.0,), two_world_runs=60)
    assert found.decision is Verdict.FAILED
    assert [one.outcome for one in found.two_worlds] == [EpsilonOutcome.REFUTED]
    assert any("THE CLAIM IS REFUTED" in one for one in said(found, Mark.WRONG))


def test_noise_that_breaks_its_bounds_ends_no_report(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CoordinateNoise.draw

    def as_wide_everywhere(own: CoordinateNoise, **more: Any) -> Any:
        """As much noise on narrow coordinates as on the widest one."""
        drawn = honest(own, **more)
        return drawn + np.abs(drawn).max() * (drawn != 0)

    monkeypatch.setattr(CoordinateNoise, "draw", as_wide_everywhere)
    found = audited(
        digits, "class_means", "attribute", modes=choose_modes(["masked"]), epsilon=(8.0,), two_world_runs=40
    )
    assert found.decision is Verdict.NOT_DECIDED
    assert "noisy total of 20 clients, epsilon 8" in {one.partition(":")[0] for one in found.failures}
    assert any("noisy total of 20 clients" in one for one in said(found, Mark.WRONG))


# What does not


def test_few_attacks_on_a_correct_mode_pass_and_the_clear_alone_is_not_decided(digits: Dataset) -> None:
    assert audited(digits, "class_means", modes=choose_modes(["masked"])).decision is Verdict.PASSED
    clear = audited(digits, "class_means", modes=choose_modes(["plain"]))
    assert clear.decision is Verdict.NOT_DECIDED
    assert [one.outcome for one in clear.results] == [Outcome.WON]


def test_few_rows_are_audited_and_what_takes_more_is_said(digits: Dataset) -> None:
    """Fewer rows than some attacks deal for sums of their own: the owner gets a report all the same."""
    tiny = replace(digits, x_train=digits.x_train[:40], y_train=digits.y_train[:40])
    found = audited(tiny, "class_means", "distinguishing", "collusion", clients=3, rows_per_client=4)
    assert ("class_means", "masked") not in bad(found)
    assert found.decision is not Verdict.FAILED


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 51))
def test_the_correct_product_passes_with_any_seed(digits: Dataset, seed: int) -> None:
    """Or fails by rows that do come out of the smallest total that it releases: pixels that few rows have."""
    found = audit(digits, AuditSettings(seed=seed, modes=choose_modes(["plain", "masked"])))
    rebuilt = found.result("peeling", "total of 14 clients")
    assert rebuilt is not None
    assert rebuilt.score is not None
    is_over = rebuilt.score.hits > 0.01 * rebuilt.score.trials
    expected = (Verdict.FAILED, {("peeling", "total of 14 clients")}) if is_over else (Verdict.PASSED, set())
    assert (found.decision, bad(found)) == expected
