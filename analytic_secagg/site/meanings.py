"""Meanings of a column's cells under a schema and a reading: numbers in the schema's unit, places of categories."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.shape_repr import shape_repr
from analytic_secagg.errors import DataError
from analytic_secagg.site.reading import ColumnReading, Reading, as_float, section_of
from analytic_secagg.site.table_files import is_number_cell, text_of
from analytic_secagg.spelling import loose, tidy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meant:
    """Values of a column's cells.

    Args:
        values: numbers, or places of categories; NaN where a value is missing, or where a cell means nothing.
        unknown: the places of cells that mean nothing, with
        texts: their texts, tidy.
        n_ambiguous: how many cells have a point before three digits that may mark thousands.
        has_marks: whether a number beside unknown cells has the reading's decimal mark.
    """

    values: NDArray[np.float64]
    unknown: tuple[int, ...]
    texts: tuple[str, ...]
    n_ambiguous: int = 0
    has_marks: bool = False

    __repr__ = shape_repr


_GROUPED = re.compile(r"[1-9]\d{0,2}\.\d{3}")

_LARGEST_FRACTION = 2.0**23
"""Beyond it numbers of 32 bits are whole."""


class Meanings:
    """A dictionary of one column's texts: numbers, or places of categories; NaN where a value is missing.

    Texts are looked up as they are, then as they may be spelt too, and what is no known text is a number.

    Args:
        name: the column's.
        texts: its categories; empty for numbers.
        missing: the schema's codes for a missing value, in the schema's own marks.
        reading: how the file writes it.
        own: how it writes this column.

    Raises:
        DataError: the reading contradicts the schema or itself.
    """

    def __init__(
        self, name: str, texts: Sequence[str], missing: frozenset[str], reading: Reading, own: ColumnReading
    ) -> None:
        self.number = None if texts else reading.number
        self.decimal = reading.decimal
        self.states_marks = bool({"decimal", "thousands"} & reading.model_fields_set)
        self.factor, self.add = own.factor, own.add
        categories = {tidy(category): float(place) for place, category in enumerate(texts)}
        spelt = Counter(map(loose, categories))
        near = _loosely({text: at for text, at in categories.items() if spelt[loose(text)] == 1})
        shared = dict.fromkeys(map(tidy, missing), math.nan)
        own_codes = dict.fromkeys(map(tidy, reading.missing | own.missing), math.nan)
        codes = shared | own_codes
        recoded = self._recodes(name, texts, own.recode, shared | categories, _loosely(shared) | near)
        if both := sorted(categories.keys() & codes.keys() - recoded.keys()):
            raise DataError(
                f"column {name} needs texts that mean one thing, and {', '.join(both)} is a category of the schema and "
                f"stands for missing too: state recode = {{...}} in {section_of(name)} with what this "
                "file means by it, or take it out of the texts for missing values"
            )
        self.exact = categories | codes | recoded
        self.near = _loosely(codes) | near | _loosely(recoded)
        self.numbers = self._numbers(shared, own_codes | recoded)
        if texts and (own.factor, own.add) != (1.0, 0.0):
            raise DataError(f"{section_of(name)} has a factor, and texts have no unit; take it away")

    def of(self, cells: Sequence[Any]) -> Meant:
        """Return what all cells of the column mean."""
        if {*map(type, cells)} == {str}:
            meant = {text: self._of_text(tidy(text)) for text in {*cells}}
            found = [meant[text] for text in cells]
        else:
            found = [self._of_cell(cell) for cell in cells]
        unknown = tuple(place for place, one in enumerate(found) if one is None)
        marked = {cell for cell in cells if isinstance(cell, str) and self.decimal in cell}
        return Meant(
            values=np.array([math.nan if one is None else one for one in found], dtype=np.float64),
            unknown=unknown,
            texts=tuple(tidy(text_of(cells[place])) for place in unknown),
            n_ambiguous=self._count_ambiguous(cells),
            has_marks=bool(unknown) and any(self._parsed(tidy(text)) is not None for text in marked),
        )

    def _count_ambiguous(self, cells: Sequence[Any]) -> int:
        """Count 1.180 beside 950 where nothing else has a point, nobody stated marks, and no number is above 999."""
        if self.number is None or self.states_marks:
            return 0
        texts = Counter(cell for cell in cells if isinstance(cell, str))
        spelt = {cell: tidy(cell) for cell in texts}
        pointed = {text for text in spelt.values() if "." in text and self._parsed(text) is not None}
        whole = {text for text in spelt.values() if text.isdecimal()}
        is_doubtful = (
            len(pointed) > 1
            and all(map(_GROUPED.fullmatch, pointed))
            and any(len(text) == 3 for text in whole)
            and all(len(text) <= 3 for text in whole)
        )
        return sum(often for cell, often in texts.items() if spelt[cell] in pointed) if is_doubtful else 0

    def _of_cell(self, cell: Any) -> float | None:
        if self.number and is_number_cell(cell):
            with suppress(OverflowError, ValueError):
                return self._in_unit(as_float(cell))
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
        if known is None and math.isfinite(converted := number * self.factor + self.add):
            return converted
        return known

    def _numbers(self, shared: Mapping[str, float], own: Mapping[str, float]) -> dict[float, float]:
        """Return the known texts that are numbers, the schema's in its own marks, the file's in its own.

        A column of 32 bits has its nearest number in the place of a fraction such as -9.9.
        """
        if self.number is None:
            return {}
        found = {}
        for known, parse in ((shared, Reading().number), (own, self.number)):
            for text, meant in known.items():
                with suppress(ValueError):
                    found[parse(text)] = meant
        for number, meant in list(found.items()):
            if abs(number) < _LARGEST_FRACTION and not number.is_integer():
                found.setdefault(float(np.float32(number)), meant)
        return found

    def _recodes(
        self,
        name: str,
        texts: Sequence[str],
        recode: Mapping[str, str],
        exact: Mapping[str, float],
        near: Mapping[str, float],
    ) -> dict[str, float]:
        """Return what recodes lead to: known texts of the schema, or numbers in its own spelling and unit."""
        found, spelt = {}, dict[str | float, float]()
        for text, meant in ((tidy(one), tidy(other)) for one, other in recode.items()):
            known = exact.get(meant, near.get(loose(meant)))
            if known is None and not texts:
                with suppress(ValueError):
                    known = Reading().number(meant)
            if known is None:
                raise DataError(
                    f"{section_of(name)} recodes to {meant!r}, which the schema does not have; recode to "
                    + (f"one of {', '.join(texts)}" if texts else "a number with a decimal point, such as 0.25")
                    + ", and list what stands for a missing value in missing = [...]"
                )
            number = self._parsed(text)
            if spelt.setdefault(loose(text) if number is None else number, known) not in (known,):  # NaN is itself
                raise DataError(
                    f"{section_of(name)} recodes several spellings of one text to different values; "
                    "take all but one away"
                )
            found[text] = known
        return found


def _loosely(known: Mapping[str, float]) -> dict[str, float]:
    return {loose(text): meant for text, meant in known.items()}
