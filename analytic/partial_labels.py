"""Labels that some rows have and others lack: each class from the rows that say whether it is theirs.

A site that labels some of the classes knows nothing of the others. Rows that are labelled for the same classes are of
one *pattern*; a sum holds one Gram matrix a pattern, and a class is solved for from the Grams of the patterns that
label it. Its weights are those of the pooled rows that are labelled for it, bit for bit. Each pattern's total is a
total of its own, so the sum counts the sites that have such rows too, and gates judge every pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL, LinearModel
from analytic.errors import InvalidRowsError, SpecificationError
from analytic.learner import ClientRows, refuse_weights
from analytic.parts import PartsSpec, together
from analytic.row_map import RowTerms
from analytic.statistics import LABELS, UNKNOWN, Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialLabels(AFL):
    """AFL of several classes a row, of which a row may be labelled for some only; a learner of one sum.

    Targets are a matrix of shape (n, c): 1 where a row is of a class, 0 where not, -1 where nobody says.

    Args:
        n_features, n_targets, feature_format, max_rows, max_clients, ridge, clip, columns, lift: as in ``AFL``, whose
            RI process and row map are left out.
        patterns: each the classes, ascending, that some rows are labelled for; together all classes. Public: they are
            agreed on, and a row that is labelled for other classes is refused.

    Raises:
        SpecificationError: real targets, an RI process, a row map, patterns that are no sets of its classes, or a class
            in none.
    """

    patterns: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        AFL.__post_init__(self)
        object.__setattr__(self, "patterns", tuple(tuple(map(int, pattern)) for pattern in self.patterns))
        if self.target_format != LABELS or self.row_map is not None or self.ri_gamma:
            raise SpecificationError(
                "partial labels are for AFL of class labels in exact sums, without an RI process: leave gamma, row map "
                "and the format of real targets out"
            )
        ascending = all(pattern and tuple(sorted(set(pattern))) == pattern for pattern in self.patterns)
        labelled = set().union(*self.patterns)
        whole = len(labelled) == self.n_targets and 0 <= min(labelled) <= max(labelled) < self.n_targets
        if not (ascending and whole) or len(set(self.patterns)) < len(self.patterns):
            raise SpecificationError(
                f"patterns are different ascending sets of classes 0 to {self.n_targets - 1} with every class in one, "
                f"not {self.patterns}"
            )

    @property
    def name(self) -> str:
        """The learner's name in reports and files."""
        return "partial-afl" if self.lift is None else "partial-random"

    @property
    def patterns_spec(self) -> PartsSpec:
        """The one sum."""
        parts = (replace(self.spec, n_targets=len(pattern)) for pattern in self.patterns)
        return PartsSpec(parts=tuple(parts), counts_sites=True)

    def next_sum(self, model: LinearModel) -> PartsSpec | None:
        """The statistics, then nothing more."""
        return self.patterns_spec if model.solution is None else None

    def client_statistics(self, model: LinearModel, rows: ClientRows) -> tuple[Statistics, ...]:
        """One client's statistics of each pattern.

        Raises:
            InvalidRowsError: targets of another shape or with other entries, or of a pattern that was not agreed on.
        """
        refuse_weights(rows)
        if not len(rows):
            rows = ClientRows(rows.features, np.zeros((0, self.n_targets), dtype=np.int64))
        known = self._known(rows.targets)
        found, seen = [], 0
        for pattern in self.patterns:
            is_labelled = np.isin(np.arange(self.n_targets), pattern)
            places = np.flatnonzero((known == is_labelled).all(axis=1))
            own = ClientRows(rows.features[places], rows.targets[places][:, list(pattern)])
            found.append(self._for(len(pattern)).own_statistics(own))
            seen += len(places)
        if seen < len(rows):
            raise InvalidRowsError(
                f"{len(rows) - seen} of {len(rows)} rows are labelled for other classes than any of the patterns "
                f"{self.patterns}: label them for one of these, or agree on another pattern"
            )
        return tuple(found)

    def _known(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        if targets.ndim != 2 or targets.shape[1] != self.n_targets or not np.isin(targets, (UNKNOWN, 0, 1)).all():
            raise InvalidRowsError(
                f"partial labels need targets of shape (n, {self.n_targets}) with entries 1, 0 and, where nobody says, "
                f"-1, not {targets.dtype} of shape {targets.shape} or other entries"
            )
        known: NDArray[np.bool_] = targets != UNKNOWN
        return known

    def _for(self, n_targets: int) -> AFL:
        """AFL of so many of the classes."""
        stated = {one.name: getattr(self, one.name) for one in fields(AFL)}
        return AFL(**stated | {"n_targets": n_targets})

    def bounded(self, terms: RowTerms) -> Self:
        """Refuse: there is no private form.

        Raises:
            SpecificationError: always.
        """
        raise SpecificationError(
            f"{self.name} has no private form, since noise covers rows with one class each: take afl, or leave the "
            "privacy plan out"
        )

    def update(self, model: LinearModel, total: Sequence[Statistics], survivors: int) -> LinearModel:
        """Each class from the patterns that label it; classes that the same ones label share a solve."""
        weights = np.zeros((self.spec.n_features, self.n_targets))
        solutions = []
        for classes, labelled in self._groups():
            columns = [
                replace(total[place], cross=total[place].cross[:, _places(self.patterns[place], classes)])
                for place in labelled
            ]
            pooled = together([replace(one, target_sum=None, n_clients=None) for one in columns])
            solutions.append(self._for(len(classes)).solve(pooled, survivors))
            weights[:, classes] = solutions[-1].weights
        worst = min(solutions, key=lambda one: one.reciprocal_condition)
        certified = all(one.certified for one in solutions)
        return LinearModel(solution=replace(worst, weights=weights, certified=certified))

    def _groups(self) -> Iterator[tuple[list[int], tuple[int, ...]]]:
        """(classes, the places of the patterns that label just these), together all classes."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for label in range(self.n_targets):
            labelled = tuple(place for place, pattern in enumerate(self.patterns) if label in pattern)
            groups.setdefault(labelled, []).append(label)
        yield from ((classes, labelled) for labelled, classes in groups.items())

    def exact_total(self, model: LinearModel, total: Sequence[Statistics], survivors: int) -> tuple[Statistics, ...]:
        """Each pattern's statistics and sites, which gates judge one by one."""
        return tuple(total)


def _places(pattern: Sequence[int], classes: Sequence[int]) -> list[int]:
    return [list(pattern).index(label) for label in classes]
