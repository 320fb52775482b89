"""The sum that sizes are shown for where there are no rows: 16-bit statistics of a thousand rows a client."""

from __future__ import annotations

from analytic.row_format import RowFormat
from analytic.statistics import StatisticsSpec
from secagg import Assumptions, Layout, MaskedSum

ROWS_PER_CLIENT = 1000
FEATURE_FORMAT = RowFormat(integer_bits=5, fraction_bits=11, signed=False)


def layout_of_statistics(n_clients: int, *, n_features: int = 512, n_targets: int = 10) -> Layout:
    """The layout that a learner such as AFL would ask for.

    Args:
        n_clients: the cohort, which bounds the rows and so the widths.
        n_features: columns of the Gram.
        n_targets: columns of the cross-correlation.

    Raises:
        analytic.errors.SpecificationError: too many rows for exact sums.
    """
    spec = StatisticsSpec(
        n_features=n_features,
        n_targets=n_targets,
        feature_format=FEATURE_FORMAT,
        max_rows=ROWS_PER_CLIENT * n_clients,
    )
    return Layout.of(spec.segments)


def planned_sum(n_clients: int, assumptions: Assumptions, *, n_features: int = 512, n_targets: int = 10) -> MaskedSum:
    """Return the masked sum of such a cohort, whose graph and threshold follow from the assumptions.

    Raises:
        secagg.errors.ConfigurationError: assumptions that no parameters meet.
    """
    identities = (number.to_bytes(32, "big") for number in range(n_clients if assumptions.malicious_server else 0))
    return MaskedSum.planned(
        layout=layout_of_statistics(n_clients, n_features=n_features, n_targets=n_targets),
        clients=tuple(range(1, n_clients + 1)),
        session_id=bytes(16),
        assumptions=assumptions,
        graph_seed=bytes(16),
        identities=tuple(identities),
        server_identity=n_clients.to_bytes(32, "big") if assumptions.malicious_server else b"",
    )
