"""Graph degree and threshold of a masked sum, computed from a threat model.

Clients are the nodes of a fixed graph of even degree k, placed by a random permutation. At most floor(corruption n) of
the n clients collude with the adversary, chosen before the permutation is drawn, and at most floor(dropout n) drop out.
Three events are bounded (Bell et al., CCS 2020, section 3.3):

- *opened*: some client has ``threshold`` corrupt neighbours, who can reconstruct its secrets;
- *split*: the sum separates into parts, each with its own masks;
- *stuck*: some client keeps fewer than ``threshold`` neighbours, so that the sum cannot be unmasked.

With a semi-honest server the graph is a Harary graph (a ring), and dropouts too are fixed before the permutation. A
split needs two runs of k/2 neighbours on the ring, all corrupt or dropouts.

A malicious server chooses dropouts and deliveries when it knows the graph. The graph then is an expander, clients sign
their masking peers, and reveal shares only if all survivors keep ``threshold`` holders. The sum does not split while
every honest client has fewer than ``threshold`` - L corrupt neighbours, L being a proven bound on the graph's second
eigenvalue (docs/explanation/expander.md). Reconstructing a secret takes more corrupt neighbours than that, so both
events have one cause.

*Opened* or *split* have probability at most 2^-security_bits, *stuck* at most 2^-correctness_bits. The latter costs a
session but no privacy; Bell et al. and Google's published parameters take 20 bits for it. The numbers of corrupt and of
surviving neighbours are hypergeometric; a union bound covers the n clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secagg.beacon import grinding_bits
from secagg.errors import ConfigurationError
from secagg.masked.expander import eigenvalue_limit, is_certified, least_degree

LOG_2 = float(np.log(2.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Threat model of a cohort, and the failure probabilities that are accepted.

    Args:
        corruption: largest fraction of clients that collude with the server, 0 to below 1.
        dropout: largest fraction of clients that drop out during a sum, 0 to below 1.
        malicious_server: True if the server may violate the protocol (about dropouts, keys, rosters), False if it is
            semi-honest.
        security_bits: privacy fails with probability at most 2^-security_bits, in addition to the primitives' own.
        correctness_bits: the sum cannot be completed with probability at most 2^-correctness_bits.

    Raises:
        ConfigurationError: a field is out of range.

    >>> assumptions = Assumptions(corruption=0.1, dropout=0.3)
    >>> assumptions.corrupt(100), assumptions.dropouts(100)
    (10, 30)
    """

    corruption: float = 0.1
    dropout: float = 0.3
    malicious_server: bool = False
    security_bits: float = 40.0
    correctness_bits: float = 20.0

    def __post_init__(self) -> None:
        if not (0 <= self.corruption < 1 and 0 <= self.dropout < 1):
            raise ConfigurationError(
                f"corruption and dropout are fractions from 0 to below 1, not {self.corruption} and {self.dropout}"
            )
        if not (self.security_bits > 0 and self.correctness_bits > 0):
            raise ConfigurationError("security and correctness need a positive number of bits")

    def corrupt(self, n_clients: int) -> int:
        """Return the largest number of corrupt clients."""
        return int(np.floor(self.corruption * n_clients + 1e-9))

    def dropouts(self, n_clients: int) -> int:
        """Return the largest number of dropouts."""
        return int(np.floor(self.dropout * n_clients + 1e-9))

    def against_grinding(self, n_clients: int, *, graphs: int = 1) -> Self:
        """Return assumptions to plan with, such that these hold even if a server chooses one of several graphs."""
        return replace(self, security_bits=self.security_bits + grinding_bits(n_clients, graphs=graphs))

    def plan_for(self, n_clients: int, degree: int) -> Plan | None:
        """Return the plan with the lowest threshold for a sparse graph of this degree; None if there is none."""
        return _with_degree(n_clients, degree, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Degree and threshold of a graph, with log2 of the failure probabilities (-inf for 0).

    ``degree`` is n - 1 for the complete graph. A client's shares are held by its neighbours and itself.
    """

    n_clients: int
    degree: int
    threshold: int
    log2_opened: float
    log2_split: float
    log2_stuck: float

    @property
    def is_complete(self) -> bool:
        """True for the complete graph."""
        return self.degree == self.n_clients - 1


@lru_cache(maxsize=256)
def plan(n_clients: int, assumptions: Assumptions) -> Plan:
    """Return the sparsest graph with the lowest threshold that meets the assumptions; the complete graph if none does.

    Raises:
        ConfigurationError: not even the complete graph meets them: corruption and dropout are too large together.
    """
    for degree in range(2, n_clients - 1, 2):
        found = _with_degree(n_clients, degree, assumptions)
        if found is not None:
            return found
    return complete_plan(n_clients, assumptions)


def complete_plan(n_clients: int, assumptions: Assumptions) -> Plan:
    """Return the plan of the complete graph: corrupt clients stay below its threshold, certain survivors reach it.

    Raises:
        ConfigurationError: there is no such threshold.
    """
    corrupt, n = assumptions.corrupt(n_clients), n_clients
    lowest = ((n + corrupt) // 2 if assumptions.malicious_server else max(n // 2, corrupt)) + 1
    highest = n - assumptions.dropouts(n)
    if n < 2 or lowest > highest:
        raise ConfigurationError(
            f"{n} clients of which {corrupt} collude and {assumptions.dropouts(n)} vanish cannot be summed safely: "
            f"opening a secret must take at least {lowest} clients, and only {highest} are sure to stay. "
            "Assume less corruption or fewer dropouts, or ask more clients"
        )
    never = float("-inf")
    return Plan(n_clients=n, degree=n - 1, threshold=lowest, log2_opened=never, log2_split=never, log2_stuck=never)


def _with_degree(n: int, degree: int, assumptions: Assumptions) -> Plan | None:
    """Return the plan with the lowest threshold for this degree; None if there is none."""
    if assumptions.malicious_server:
        return _on_expander(n, degree, assumptions)
    per_event = -assumptions.security_bits - 1
    opened = log2_at_least(n, assumptions.corrupt(n), degree)
    threshold = max(_first_rare(opened, per_event) + 1, 2)
    split = log2_split(n, degree, assumptions.corrupt(n) + assumptions.dropouts(n))
    stuck = log2_at_most(n, n - assumptions.dropouts(n), degree)
    if split > per_event or threshold > degree or stuck[threshold - 1] > -assumptions.correctness_bits:
        return None
    return Plan(
        n_clients=n,
        degree=degree,
        threshold=threshold,
        log2_opened=float(opened[threshold]),
        log2_split=split,
        log2_stuck=float(stuck[threshold - 1]),
    )


def _on_expander(n: int, degree: int, assumptions: Assumptions) -> Plan | None:
    """Return the plan for a malicious server."""
    limit, fewest_neighbours = eigenvalue_limit(n, degree), least_degree(n, degree)
    corrupt = log2_at_least(n, assumptions.corrupt(n), degree)
    threshold = _first_rare(corrupt, -assumptions.security_bits) + 1 + limit
    if threshold > fewest_neighbours:
        return None
    stuck = log2_at_most(n, n - assumptions.dropouts(n), fewest_neighbours)
    if stuck[threshold - 1] > -assumptions.correctness_bits or not is_certified(n, degree):
        return None
    return Plan(
        n_clients=n,
        degree=degree,
        threshold=threshold,
        log2_opened=float(corrupt[threshold]),
        log2_split=float(corrupt[threshold - limit]),
        log2_stuck=float(stuck[threshold - 1]),
    )


def _first_rare(log2_tails: NDArray[np.float64], log2_limit: float) -> int:
    """Return the smallest m such that more than m events are as rare as the limit."""
    return int(np.argmax(log2_tails <= log2_limit)) - 1


def log2_split(n: int, degree: int, removed: int) -> float:
    """Return log2 of a bound on the probability that removing random nodes disconnects a Harary graph.

    Two disjoint runs of degree / 2 successive nodes must be removed: n (n - degree - 1) / 2 places, each with
    probability C(n - degree, removed - degree) / C(n, removed).
    """
    if degree > removed:
        return float("-inf")
    places = np.log(n) + np.log(max(n - degree - 1, 1)) - LOG_2
    gone = _log_gamma(removed + 1) + _log_gamma(n - degree + 1) - _log_gamma(n + 1) - _log_gamma(removed - degree + 1)
    return float((places + gone) / LOG_2)


def log2_at_least(n: int, marked: int, degree: int) -> NDArray[np.float64]:
    """Return, for m = 0 .. degree + 1, log2 of a bound on P(some client has >= m marked neighbours)."""
    tails = np.logaddexp.accumulate(_log_pmf(n - 1, marked, degree)[::-1])[::-1]
    return _union_bound(np.append(tails, -np.inf), n)


def log2_at_most(n: int, marked: int, degree: int) -> NDArray[np.float64]:
    """Return, for m = 0 .. degree, log2 of a bound on P(some client has <= m marked neighbours)."""
    return _union_bound(np.logaddexp.accumulate(_log_pmf(n - 1, marked, degree)), n)


def _union_bound(log_tails: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    log2: NDArray[np.float64] = np.minimum(log_tails + np.log(n), 0.0) / LOG_2
    return log2


def _log_pmf(n: int, marked: int, drawn: int) -> NDArray[np.float64]:
    """Return the log of the hypergeometric probabilities of 0 .. ``drawn`` marked items."""
    marked = min(marked, n)
    m = np.arange(drawn + 1, dtype=np.float64)
    possible = (m <= marked) & (drawn - m <= n - marked)
    m = np.where(possible, m, max(0, drawn - (n - marked)))
    log_pmf = _log_choose(marked, m) + _log_choose(n - marked, drawn - m) - _log_choose(n, drawn)
    return np.where(possible, log_pmf, -np.inf)


def _log_choose(n: float, m: NDArray[np.float64] | float) -> NDArray[np.float64]:
    chosen: NDArray[np.float64] = _log_gamma(n + 1.0) - _log_gamma(np.add(m, 1.0)) - _log_gamma(n - np.asarray(m) + 1.0)
    return chosen


def _log_gamma(x: Any) -> Any:
    from scipy.special import gammaln  # takes longer to import than all of this package: only where it plans a graph

    return gammaln(x)
