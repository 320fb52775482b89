"""The sections of the benchmark, in order."""

from __future__ import annotations

from collections.abc import Mapping

from simulations.bench import cohorts, counts, gram, masks, mode_costs, solving, whole_client, wire_bytes
from simulations.bench.rows import Section

SECTIONS: Mapping[str, Section] = {
    module.SECTION.letter: module.SECTION
    for module in (masks, whole_client, wire_bytes, gram, counts, solving, cohorts, mode_costs)
}
"""Every section by its letter."""
