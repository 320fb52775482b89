"""Masked sums (Bonawitz et al., CCS 2017; Bell et al., CCS 2020): `secagg.MaskedSum` and `secagg.MaskedSeries`."""
