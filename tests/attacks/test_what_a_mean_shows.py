"""What the mean itself gives away, whatever hides the updates behind it: rows and members of small rounds."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from analytic.learner import ClientRows
from analytic_secagg.datasets import bundled
from analytic_secagg.modes import choose_modes
from simulations.audit.attacks.means import Mean
from simulations.audit.audit import audit
from simulations.audit.catalogue import choose_attacks
from simulations.audit.decide import Rule
from simulations.audit.settings import AuditSettings

all_x, all_y = load_digits(return_X_y=True)
EVERYBODY = ClientRows(all_x / 16, all_y)


def rows_of(label: int, some: slice) -> ClientRows:
    return EVERYBODY.taken(np.flatnonzero(all_y == label)[some])


def test_a_row_of_a_class_that_nobody_else_has_is_read_off_the_mean() -> None:
    """Of nine clients with a row each, every row is found exactly; of classes of 50 rows, their sums alone."""
    lone = {c + 1: rows_of(c, slice(1)) for c in range(9)}
    rows, labels = Mean.of(lone, 10).lone_rows()
    assert labels.tolist() == list(range(9))
    for c in range(9):
        assert np.abs(rows[c] - lone[c + 1].features[0]).max() < 1e-4
    many = Mean.of({c + 1: rows_of(c, slice(50)) for c in range(9)}, 10)
    assert many.lone_rows()[1].size == 0
    means = many.update * many.weight / 50
    for c in range(9):
        of_class = means[:-1, c] - means[:-1, 9]
        assert np.abs(of_class - rows_of(c, slice(50)).features.mean(axis=0)).max() < 1e-3
        assert np.abs(EVERYBODY.features - of_class).max(axis=1).min() > 0.1  # and it is none of them


def membership_auc(n_clients: int, n_rows: int, seed: int) -> float:
    """How well the score tells the rows of a round from rows that were in no client's.

    The attacker knows the sum of the population's updates, and takes its expectation off.
    """
    order = np.random.default_rng(seed).permutation(len(all_y))
    inside, outside = order[: n_clients * n_rows], order[len(all_y) // 2 :][: n_clients * n_rows]
    clients = {p + 1: EVERYBODY.taken(held) for p, held in enumerate(np.split(inside, n_clients))}
    scores = Mean.of(clients, 10).scores(EVERYBODY.taken(np.concatenate([inside, outside])), EVERYBODY)
    return float(roc_auc_score([1] * len(inside) + [0] * len(outside), scores))


def test_who_was_in_a_small_round_is_found_and_in_a_large_one_hardly() -> None:
    """Three clients of 4 rows, seeds 0 to 19, then three of 250, seeds 0 to 4: the mean areas under the curve."""
    small = np.mean([membership_auc(3, 4, seed) for seed in range(20)])
    large = np.mean([membership_auc(3, 250, seed) for seed in range(5)])
    assert small > 0.75
    assert large < 0.65


def test_the_audit_tries_both_on_the_owners_cohort() -> None:
    """Three clients of about 3 rows lose most of them, twenty of about 40 none; neither decides the audit."""
    for clients, rows, is_lost in ((3, 3, True), (20, 40, False)):
        settings = AuditSettings(
            modes=choose_modes(["plain"]),
            attacks=choose_attacks(["mean_rows", "mean_membership"]),
            clients=clients,
            rows_per_client=rows,
            cohorts=(),
        )
        results = {one.attack: one for one in audit(bundled("digits"), settings).results}
        assert {(one.exposure, one.rule) for one in results.values()} == {
            (f"one mean of an update of {clients} clients", Rule.KNOWN)
        }
        (of_rows, of_members) = (results[name].score for name in ("mean_rows", "mean_membership"))
        assert of_rows is not None
        assert (of_rows.rate > 0.5) is (of_rows.hits > 0) is is_lost
        assert of_members is not None
        assert of_members.trials > 0
