"""What an attack is given: the exposure that it looks at, and no more knowledge than it states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from analytic.learner import ClientRows, fit_pooled
from analytic_secagg.modes import MODES
from secagg import PartyId
from secagg.layout import IntVector
from simulations.audit.attack import ExposureAttack, attacked
from simulations.audit.catalogue import ATTACKS
from simulations.audit.columns import Column
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth
from simulations.audit.view import Reading
from simulations.audit.workbench import Bench


def sizes(known: Known) -> tuple[int, int, int, int, int, int, int]:
    """Everything that it holds, by number."""
    rows = known.rows
    of_rows = len(rows.candidates), len(rows.candidate_labels), len(rows.outlying), len(rows.public)
    return *of_rows, len(known.candidates), len(known.public), len(known.worlds)


@pytest.mark.parametrize(
    ("needs", "candidates", "public", "worlds"),
    [
        (Knowledge.NOTHING, False, False, False),
        (Knowledge.PUBLIC_ROWS, False, True, False),
        (Knowledge.ONE_ROW, True, True, False),
        (Knowledge.ALL_BUT_ONE, True, True, True),
    ],
)
def test_each_grade_gives_its_own_and_that_of_the_ones_before_and_no_more(
    bench: Bench, needs: Knowledge, candidates: bool, public: bool, worlds: bool
) -> None:
    vector = np.zeros(3, dtype=np.int64)
    known = bench.known({1: (vector, vector)})
    assert sizes(known) == (300, 300, 300, 200, 300, 200, 1)
    given = sizes(known.granted(needs))
    of_rows = 300 * candidates, 300 * candidates, 300 * candidates, 200 * public
    assert given == (*of_rows, 300 * candidates, 200 * public, int(worlds))


def test_an_attack_gets_what_it_states_and_nothing_of_the_truth(bench: Bench) -> None:
    """Whatever is known, ``guess`` is called with the grade's share of it; ``score`` alone with the truth."""
    recorded = bench.run(MODES["plain"], bench.vectors(cohort := bench.cohort(3)))
    worlds = bench.worlds(recorded.inputs)
    given = list[tuple[object, ...]]()

    class Noting(ExposureAttack[int]):
        name = title = explanation = "noting"

        def guess(self, *seen: object) -> int:
            given.append(seen)
            return 5

        def score(self, guess: int, truth: Truth, rng: np.random.Generator) -> Score:
            return Score(hits=int(len(truth.rows) >= guess), trials=1, chance=0.5)

    one, exposure = Noting(), Exposure.of((recorded,), 1)
    for needs in Knowledge:
        one.needs = needs
        attacked(one, exposure, bench.known(worlds), bench.truth(cohort[1], recorded.inputs[1]), bench.rng)
    for needs, (seen, known, rng) in zip(Knowledge, given, strict=True):
        assert seen is exposure
        assert rng is bench.rng
        assert isinstance(known, Known)
        assert sizes(known) == sizes(bench.known(worlds).granted(needs))


def test_every_attack_of_rows_states_what_it_needs() -> None:
    """Who asks about a row knows it; who rebuilds rows knows none of them."""
    for attack in ATTACKS.values():
        if isinstance(attack, ExposureAttack) and attack.unit == "row":
            about_given_rows = attack.name in {"membership", "all_sums", "attribute", "model_membership", "dictionary"}
            assert (attack.needs in (Knowledge.ONE_ROW, Knowledge.ALL_BUT_ONE)) == about_given_rows, attack.name


@pytest.fixture
def vectors(bench: Bench) -> Mapping[PartyId, IntVector]:
    return bench.vectors(bench.cohort(4))


def test_a_message_is_read_as_its_bytes_are(bench: Bench, vectors: Mapping[PartyId, IntVector]) -> None:
    clear, masked = (bench.run(MODES[name], vectors) for name in ("plain", "masked"))
    seen = Exposure.of((clear,), 2)
    assert seen.kind is Kind.MESSAGE
    assert np.array_equal(seen.read(), vectors[2])
    hidden = Exposure.of((masked,), 2).read()
    assert hidden is not None
    assert not np.array_equal(hidden, vectors[2])
    unseen = Exposure.of((clear,), 99)
    assert unseen.read() is None
    assert unseen.reading is None


def test_a_total_is_that_of_all_clients(bench: Bench, vectors: Mapping[PartyId, IntVector]) -> None:
    recorded = bench.run(MODES["masked"], vectors)
    seen = Exposure.of((recorded,))
    assert seen.kind is Kind.TOTAL
    assert np.array_equal(seen.read(), sum(vectors.values()))
    several = Exposure.of((recorded, bench.run(MODES["plain"], {1: vectors[1], 2: vectors[2]})))
    assert several.kind is Kind.TOTALS
    assert np.array_equal(several.read(0), sum(vectors.values()))
    reading = several.reading
    assert reading is not None
    expected = Reading.of(bench.layout, vectors[1] + vectors[2])
    assert np.array_equal(reading.gram, expected.gram)
    assert reading.count == expected.count


def test_of_a_model_nothing_but_the_model_is_seen(bench: Bench) -> None:
    """The same weights as a pooled fit of the same rows, and no sum."""
    column = Column(kind=Kind.MODEL, bench=bench, clients=8)
    cohort = column.cohort()
    seen, known, truth = column.target(cohort)
    assert (seen.kind, seen.sums, seen.target, seen.read(), seen.reading) == (Kind.MODEL, (), None, None, None)
    pooled = fit_pooled(bench.learner, ClientRows.pool([bench.population.rows(rows) for rows in cohort.values()]))
    assert bench.learner.weights_bytes(seen.model) == bench.learner.weights_bytes(pooled)
    assert len(known.worlds) == 0
    assert truth.is_member.sum() == len(truth.rows) == sum(map(len, cohort.values()))


def test_a_column_is_made_once_for_all_attacks_that_share_it(bench: Bench) -> None:
    column = Column(kind=Kind.TOTAL, bench=bench, clients=3)
    assert column.standard is column.standard
    assert column.name == "total of 3 clients"
    vector = column.standard[0].read()
    assert np.array_equal(vector, column.standard[2].vector)
