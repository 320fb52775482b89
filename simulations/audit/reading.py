"""Statistics as an adversary reads them: any vector of the right size is taken for a Gram and a cross-correlation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from analytic.row_format import FloatMatrix
from analytic.statistics import Statistics
from federation.release import RANK_TOLERANCE, gram_rank
from secagg import Layout, PartyId
from secagg.layout import IntVector
from simulations.audit.view import AdversaryView

IntMatrix = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """What ``StatisticsSpec`` and ``CountSpec`` put into a vector, unchecked: it may be noise.

    Args:
        gram: shape (d, d), symmetric by construction.
        cross: shape (d, c).
        count: number of rows.
    """

    gram: IntMatrix = field(repr=False)
    cross: IntMatrix = field(repr=False)
    count: int

    @classmethod
    def of(cls, layout: Layout, vector: IntVector) -> Self:
        """Take a vector of segments gram (upper triangle), cross and count apart."""
        parts = {segment.name: vector[place] for segment, place in layout.slices()}
        d = width_of(len(parts["gram"]))
        gram = np.zeros((d, d), dtype=np.int64)
        gram[np.triu_indices(d)] = parts["gram"]
        gram += np.triu(gram, 1).T
        return cls(gram=gram, cross=parts["cross"].reshape(d, -1), count=int(parts["count"][0]))

    @property
    def scale(self) -> int:
        """The power of two that all rows seem to be multiples of: rows coarser than their format show it."""
        common = int(np.gcd.reduce(np.abs(self.cross), axis=None))
        squared = int(np.gcd.reduce(np.abs(self.gram), axis=None))
        scale = common & -common if common else 1
        while squared % (scale * scale):
            scale //= 2
        return scale

    @property
    def unit(self) -> float:
        """The length of the longest feature where that is above 1: no entry of a Gram is larger than its square."""
        return max(1.0, float(np.sqrt(np.abs(self.gram.diagonal()).max(initial=1))))

    def scaled(self) -> tuple[FloatMatrix, FloatMatrix]:
        """Gram and cross-correlation in float64, in units in which a typical entry is near 1."""
        unit = self.unit
        return self.gram / unit**2, self.cross / unit

    @property
    def rank(self) -> int:
        """Numerical rank of the Gram."""
        return gram_rank(Statistics(gram=self.gram, cross=self.cross, count=0))

    def class_counts(self) -> NDArray[np.int64] | None:
        """Rows of each class: H^T G^+ H = Y^T Y, as long as the rows are linearly independent; None if they are not."""
        gram, cross = self.scaled()
        product = cross.T @ np.linalg.pinv(gram, rcond=RANK_TOLERANCE, hermitian=True) @ cross
        counts = np.round(product.diagonal())
        if not np.isfinite(product).all() or np.abs(product - np.diag(counts)).max() > 0.01 or counts.min() < 0:
            return None
        return counts.astype(np.int64)


def width_of(n_upper: int) -> int:
    """The d of a d x d Gram whose upper triangle has this many entries."""
    return (int(np.sqrt(8 * n_upper + 1)) - 1) // 2


def reading_of(view: AdversaryView, target: PartyId | None) -> Reading | None:
    """A client's upload in the last sum, or, for no client, that sum's total; None if the adversary saw neither."""
    vector = view.read(target)
    return None if vector is None else Reading.of(view.sums[-1].layout, vector)
