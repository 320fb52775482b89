"""Masked sums (Bonawitz et al., CCS 2017; Bell et al., CCS 2020): `secagg.MaskedSum` and `secagg.MaskedSeries`."""

from secagg.masked.assumptions import Assumptions
from secagg.masked.protocol import MaskedSum

__all__ = ["Assumptions", "MaskedSum"]
