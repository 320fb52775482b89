"""Double-masked sums (Bonawitz et al., CCS 2017)."""

from secagg.masked.config import MaskedSum

__all__ = ["MaskedSum"]
