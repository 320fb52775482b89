"""From a threat model to a graph and a threshold: bounds that are computed and not guessed.

Clients are the nodes of a fixed graph of even degree k over a random permutation. Among n clients at most
floor(corruption n) work with the adversary, whoever they are, as long as that is settled before the permutation is
drawn, and at most floor(dropout n) vanish. Three things may then go wrong (Bell et al., CCS 2020, section 3.3):

- *opened*: some client has so many corrupt neighbours that they open a secret of it: ``threshold`` of them;
- *split*: the sum falls into parts, each with masks of its own;
- *stuck*: some client keeps fewer than ``threshold`` neighbours, so that the sum cannot be unmasked.

Where the server does not lie the graph is a Harary graph, a ring, and dropouts too are settled before the permutation:
a split takes two runs of k/2 neighbours on the ring, all corrupt or dropouts.

A server that lies chooses dropouts when it knows the graph, and which shares reach whom. Against it the graph is an
expander, clients sign whom they masked with, and they reveal shares only where all survivors keep ``threshold``
holders. Then the sum does not fall into parts while every honest client has fewer than ``threshold`` - L corrupt
neighbours, L being the limit that the graph's second eigenvalue is proved to be below: docs/explanation/expander.md. To
open a secret takes more corrupt neighbours than that, so the two have one cause.

Opened or split have probability at most 2^-security_bits. The third has 2^-correctness_bits: it costs a session and
nobody's privacy, so Bell et al. and the parameters that Google publishes take 20 bits for it. Corrupt or surviving
neighbours follow a hypergeometric law; a union bound over n clients does the rest.
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
    """What a cohort is promised to be, and how sure the promise must be.

    Args:
        corruption: largest fraction of clients that collude with the server, 0 to below 1.
        dropout: largest fraction of clients that vanish during a sum, 0 to below 1.
        malicious_server: whether the server may lie (about dropouts, keys, rosters) or only looks on.
        security_bits: privacy fails with probability at most 2^-security_bits, beyond the primitives' own.
        correctness_bits: the sum gets stuck with probability at most 2^-correctness_bits.
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
        """Largest number of corrupt clients."""
        return int(np.floor(self.corruption * n_clients + 1e-9))

    def dropouts(self, n_clients: int) -> int:
        """Largest number of dropouts."""
        return int(np.floor(self.dropout * n_clients + 1e-9))

    def against_grinding(self, n_clients: int, *, graphs: int = 1) -> Self:
        """Return the assumptions to plan with, so that these still hold after a server chose among drawn graphs."""
        return replace(self, security_bits=self.security_bits + grinding_bits(n_clients, graphs=graphs))

    def plan_for(self, n_clients: int, degree: int) -> Plan | None:
        """The lowest threshold that serves a sparse graph of this degree; None if none does."""
        return _with_degree(n_clients, degree, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A graph's degree and a threshold, with what they guarantee (log2 of probabilities, -inf for never).

    ``degree`` is n - 1 for the complete graph. Shares of a client lie with its neighbours and itself.
    """

    n_clients: int
    degree: int
    threshold: int
    log2_opened: float
    log2_split: float
    log2_stuck: float

    @property
    def is_complete(self) -> bool:
        """Whether every pair of clients is joined."""
        return self.degree == self.n_clients - 1


@lru_cache(maxsize=256)
def plan(n_clients: int, assumptions: Assumptions) -> Plan:
    """The sparsest graph, with its lowest threshold, that meets the assumptions; the complete one if none does.

    Raises:
        ConfigurationError: not even the complete graph can: too much corruption and dropout at once.
    """
    for degree in _candidates(n_clients):
        found = _with_degree(n_clients, degree, assumptions)
        if found is not None:
            return found
    return complete_plan(n_clients, assumptions)


def complete_plan(n_clients: int, assumptions: Assumptions) -> Plan:
    """The complete graph's threshold: above what corrupt clients can open, at most what survives for sure.

    Raises:
        ConfigurationError: no threshold lies between the two.
    """
    corrupt, n = assumptions.corrupt(n_clients), n_clients
    lowest = ((n + corrupt) // 2 if assumptions.malicious_server else max(n // 2, corrupt)) + 1
    highest = n - assumptions.dropouts(n)
    if n < 2 or lowest > highest:
        raise ConfigurationError(
            f"{n} clients of which {corrupt} collude and {assumptions.dropouts(n)} vanish cannot be summed safely: "
            f"opening a secret must take at least {lowest} clients, and only {highest} are sure to stay. "
            "Promise less corruption or fewer dropouts, or ask more clients"
        )
    never = float("-inf")
    return Plan(n_clients=n, degree=n - 1, threshold=lowest, log2_opened=never, log2_split=never, log2_stuck=never)


def _candidates(n_clients: int) -> range:
    return range(2, n_clients - 1, 2)


def _with_degree(n: int, degree: int, assumptions: Assumptions) -> Plan | None:
    """The lowest threshold that serves this degree, or None."""
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
    """The same against a server that lies."""
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
    """The fewest m so that more than m are as rare as the limit asks."""
    return int(np.argmax(log2_tails <= log2_limit)) - 1


def log2_split(n: int, degree: int, removed: int) -> float:
    """log2 of a bound on the probability that ``removed`` random nodes cut a Harary graph.

    Two disjoint runs of degree / 2 successive nodes must go: n (n - degree - 1) / 2 places for them, each gone with
    probability C(n - degree, removed - degree) / C(n, removed).
    """
    if degree > removed:
        return float("-inf")
    places = np.log(n) + np.log(max(n - degree - 1, 1)) - LOG_2
    gone = _log_gamma(removed + 1) + _log_gamma(n - degree + 1) - _log_gamma(n + 1) - _log_gamma(removed - degree + 1)
    return float((places + gone) / LOG_2)


def log2_at_least(n: int, marked: int, degree: int) -> NDArray[np.float64]:
    """For m = 0 .. degree + 1: log2 of a bound on the probability that some client has >= m marked neighbours."""
    tails = np.logaddexp.accumulate(_log_pmf(n - 1, marked, degree)[::-1])[::-1]
    return _union_bound(np.append(tails, -np.inf), n)


def log2_at_most(n: int, marked: int, degree: int) -> NDArray[np.float64]:
    """For m = 0 .. degree: log2 of a bound on the probability that some client has <= m marked neighbours."""
    return _union_bound(np.logaddexp.accumulate(_log_pmf(n - 1, marked, degree)), n)


def _union_bound(log_tails: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    log2: NDArray[np.float64] = np.minimum(log_tails + np.log(n), 0.0) / LOG_2
    return log2


def _log_pmf(n: int, marked: int, drawn: int) -> NDArray[np.float64]:
    """Log of the hypergeometric law of the marked among ``drawn`` of n, for 0 .. drawn."""
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
