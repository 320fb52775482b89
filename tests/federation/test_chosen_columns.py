"""The scales of columns are the server's to propose, and one crafted scale turns a total into a patient's row.

Known and not mended yet: sites do not pin the learner's configuration (docs/explanation/threat-model.md, "What is not
protected"). The test says so if that changes.
"""

from __future__ import annotations

import numpy as np
import pytest

from analytic import AFL, ClientRows, ColumnMap, RowFormat
from federation import run_federation
from federation.datasets import bundled
from federation.modes import choose_modes

FORMAT = RowFormat.parse("UQ0.20")


@pytest.mark.xfail(strict=True, reason="a site checks the learner's name and nothing of its configuration")
def test_no_choice_of_columns_shows_a_row_in_one_masked_total() -> None:
    """One column is scaled so that a single row of all clients together exceeds one unit, and every other truncates to
    nothing: that column's line of the total Gram is then the row itself. Helpers, masks and journals see a usual total.
    """
    data = bundled("breast_cancer")
    rows, labels = data.x_train, data.y_train
    column, unit = next(
        (column, unit)
        for column in range(rows.shape[1])
        for unit in 2.0 ** np.arange(-10, 13)
        if np.count_nonzero(rows[:, column] >= unit) == 1 and rows[:, column].max() < 2 * unit
    )
    exponents = np.ceil(np.log2(rows.max(axis=0) * 1.01)).astype(int)
    exponents[column] = FORMAT.fraction_bits + int(np.log2(unit))
    learner = AFL(
        n_features=rows.shape[1],
        n_targets=2,
        feature_format=FORMAT,
        max_rows=1000,
        columns=ColumnMap(exponents=tuple(map(int, exponents))),
    )
    parts = np.array_split(np.random.default_rng(0).permutation(len(rows)), 5)
    clients = {party: ClientRows(rows[part], labels[part]) for party, part in enumerate(parts, start=1)}
    run = run_federation(learner, clients, choose_modes(["masked"])[0])
    gram = learner.spec.from_vector(run.totals[0].total).gram
    others = np.arange(rows.shape[1]) != column
    read = np.ldexp(gram[column, others].astype(float), exponents[others] - FORMAT.fraction_bits)
    patient = rows[np.argmax(rows[:, column]), others]
    assert np.abs(read - patient).max() > 0.01
