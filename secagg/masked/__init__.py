"""Doubly masked sums (Bonawitz et al., CCS 2017; Bell et al., CCS 2020)."""

from secagg.masked.assumptions import Assumptions
from secagg.masked.protocol import MaskedSum

__all__ = ["Assumptions", "MaskedSum"]
