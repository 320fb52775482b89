"""A model's error on the rows of a total, from the total alone, against rationals over the rows and scikit-learn."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import r2_score

from analytic.afl import AFL
from analytic.errors import SpecificationError
from analytic.learner import ClientRows
from analytic.row_format import ColumnMap, RowFormat
from analytic.statistics import LABELS, Statistics, one_hot
from analytic.total_error import r2, squared_errors

X = np.random.default_rng(5).integers(-900, 900, (60, 4)) / 64
Y = np.round((X @ [[1.0, -3], [2, 0], [0, 1], [4, 4]] + np.random.default_rng(6).normal(size=(60, 2))) * 256) / 256
LABEL = (Y[:, 0] > 0).astype(np.int64)


def learner(*, labels: bool) -> AFL:
    columns = ColumnMap(exponents=(4,) * 4, target_exponents=() if labels else (8, 8), intercept=1)
    return AFL(
        n_features=4,
        n_targets=2,
        feature_format=RowFormat(integer_bits=0, fraction_bits=12),
        target_format=LABELS if labels else RowFormat(integer_bits=0, fraction_bits=20),
        max_rows=100,
        columns=columns,
        ridge=0.25,
    )


@pytest.mark.parametrize("labels", [True, False])
def test_errors_are_those_of_the_rows_exactly(labels: bool) -> None:
    own, goals = learner(labels=labels), one_hot(LABEL, 2) if labels else Y
    total = own.client_statistics(own.init(), ClientRows(X[:40], LABEL[:40] if labels else Y[:40]))
    other = own.client_statistics(own.init(), ClientRows(X[40:], LABEL[40:] if labels else Y[40:]))
    weights = own.solve(total).weights
    matrix, bias = own.columns.own_units(weights)  # type: ignore[union-attr]  # powers of two: exact
    for part, place in ((total, slice(40)), (other, slice(40, None))):
        rows = [[Fraction(x) for x in row] for row in X[place].tolist()]
        expected = tuple(
            sum(
                (Fraction(y) - Fraction(b) - sum(x * Fraction(w) for x, w in zip(row, column, strict=True))) ** 2
                for row, y in zip(rows, goals[place, target].tolist(), strict=True)
            )
            for target, (column, b) in enumerate(zip(matrix.T.tolist(), bias.tolist(), strict=True))
        )
        assert squared_errors(own, weights, part) == expected
        predicted = X[place] @ matrix + bias
        assert np.allclose(r2(own, weights, part), r2_score(goals[place], predicted, multioutput="raw_values"), 1e-11)


def test_a_total_without_the_targets_sums_is_refused_and_one_of_equal_targets_has_no_r2() -> None:
    own = learner(labels=True)
    total = own.client_statistics(own.init(), ClientRows(X, np.zeros(60, dtype=np.int64)))
    assert np.isnan(r2(own, np.zeros((5, 2)), total)).all()
    bare = Statistics(gram=total.gram, cross=total.cross, count=total.count)
    with pytest.raises(SpecificationError, match="target_sums=True"):
        squared_errors(own, np.zeros((5, 2)), bare)
