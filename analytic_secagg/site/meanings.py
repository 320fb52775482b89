"""Meanings of a column's cells under a schema and a reading: numbers in the schema's unit, places of categories."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.errors import DataError
from analytic_secagg.site.reading import ColumnReading, Reading
from analytic_secagg.site.table_files import is_number_cell, text_of
from analytic_secagg.spelling import loose, tidy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meant:
    """Values of a column's cells.

    Args:
        values: numbers, or places of categories; NaN where a value is missing, or where a cell means nothing.
        unknown: the places of cells that mean nothing, with
        texts: their texts, tidy.
    """

    values: NDArray[np.float64]
    unknown: tuple[int, ...]
    texts: tuple[str, ...]


class Meanings:
    """A dictionary of one column's texts: numbers, or places of categories; NaN where a value is missing.

    Texts are looked up as they are, then as they may be spelt too, and what is no known text is a number.
    """

    def __init__(
        self, name: str, texts: Sequence[str], missing: frozenset[str], reading: Reading, own: ColumnReading
    ) -> None:
        self.number = None if texts else reading.number
        self.factor, self.add = own.factor, own.add
        categories = {tidy(category): float(place) for place, category in enumerate(texts)}
        spelt = Counter(map(loose, categories))
        codes = dict.fromkeys(map(tidy, missing), math.nan)
        self.exact = categories | codes
        self.near = _loosely(codes) | _loosely({text: at for text, at in categories.items() if spelt[loose(text)] == 1})
        recoded = {tidy(text): self._recoded(name, texts, tidy(meant)) for text, meant in own.recode.items()}
        self.exact |= recoded
        self.near |= _loosely(recoded)
        self.numbers = {
            number: meant for text, meant in self.exact.items() if (number := self._parsed(text)) is not None
        }
        if texts and (own.factor, own.add) != (1.0, 0.0):
            raise DataError(f"[client.reading.columns.{name}] has a factor, and texts have no unit; take it away")

    def of(self, cells: Sequence[Any]) -> Meant:
        """Return what all cells of the column mean."""
        if {*map(type, cells)} == {str}:
            meant = {text: self._of_text(tidy(text)) for text in {*cells}}
            found = [meant[text] for text in cells]
        else:
            found = [self._of_cell(cell) for cell in cells]
        unknown = tuple(place for place, one in enumerate(found) if one is None)
        return Meant(
            values=np.array([math.nan if one is None else one for one in found], dtype=np.float64),
            unknown=unknown,
            texts=tuple(tidy(text_of(cells[place])) for place in unknown),
        )

    def _of_cell(self, cell: Any) -> float | None:
        if self.number and is_number_cell(cell):
            return self._in_unit(float(cell))
        return self._of_text(tidy(text_of(cell)))

    def _of_text(self, text: str) -> float | None:
        known = self.exact.get(text)
        if known is None and (number := self._parsed(text)) is not None:
            return self._in_unit(number)
        return self.near.get(loose(text)) if known is None else known

    def _parsed(self, text: str) -> float | None:
        try:
            return None if self.number is None else self.number(text)
        except ValueError:
            return None

    def _in_unit(self, number: float) -> float | None:
        known = self.numbers.get(number)
        if known is None and math.isfinite(number):
            return number * self.factor + self.add
        return known

    def _recoded(self, name: str, texts: Sequence[str], text: str) -> float:
        """Look up the text that a recode leads to, in the schema's own spelling and unit."""
        with suppress(ValueError):
            if (known := self.exact.get(text, self.near.get(loose(text)))) is not None:
                return known
            if not texts:
                return Reading().number(text)
        raise DataError(
            f"[client.reading.columns.{name}] recodes to a text that the schema does not have; recode to one of "
            f"{', '.join(texts) or 'its numbers, with a decimal point'}"
        )


def _loosely(known: Mapping[str, float]) -> dict[str, float]:
    return {loose(text): meant for text, meant in known.items()}
