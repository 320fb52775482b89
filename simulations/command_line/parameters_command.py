"""The command ``parameters``: what a masked sum's graph and threshold, or a committee, guarantee and cost, by size."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analytic.row_format import RowFormat
from analytic.statistics import StatisticsSpec
from analytic_secagg.console.arguments import number, whole, wholes
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.errors import UsageError
from analytic_secagg.modes import MODES, fresh_identity
from secagg import Assumptions, CommitteeSum, Layout, MaskedSum, PartyId
from secagg.committee.seed_sharing import MOST_SEEDS, ReplicatedSharing
from secagg.config import MAX_CLIENTS, SERVER
from secagg.masked.assumptions import plan
from secagg.sums import CLIENT_ROLE

ROWS_PER_CLIENT = 1000
FEATURE_FORMAT = RowFormat(integer_bits=5, fraction_bits=11, signed=False)


def _nobodys_key(party: PartyId) -> bytes:
    """An identity that nobody signs with: what a sum promises and costs does not depend on keys."""
    return hashlib.sha256(party.to_bytes(4, "big")).digest()


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
    clients = tuple(range(1, n_clients + 1))
    return MaskedSum.planned(
        layout=layout_of_statistics(n_clients, n_features=n_features, n_targets=n_targets),
        clients=clients,
        session_id=bytes(16),
        assumptions=assumptions,
        graph_seed=bytes(16),
        identities=tuple(_nobodys_key(party) for party in clients if assumptions.malicious_server),
        server_identity=_nobodys_key(SERVER) if assumptions.malicious_server else b"",
    )


def committee_sum(n_helpers: int, corrupt: int, layout: Layout) -> CommitteeSum:
    """Return the sum of a committee whose parties sign, of three clients: what it promises depends on helpers alone.

    Raises:
        UsageError, secagg.errors.ConfigurationError: no committee of so many has so many corrupt ones.
    """
    mode = MODES["committee"].with_options(helpers=n_helpers, corrupt=corrupt)
    parties = mode.in_one_process(
        layout=layout, clients=(1, 2, 3), session_id=bytes(16), min_survivors=2, identity_of=fresh_identity
    )
    assert isinstance(parties.protocol, CommitteeSum), "a committee's"
    return parties.protocol


MOST_HELPERS = 64
"""A committee is a handful; even of so many at most one or two may collude before there are too many seeds."""

MOST_COLUMNS = 2**15
"""A Gram of more columns takes gigabytes, and no layout holds much more."""


def _fraction(text: str) -> float:
    return number(text, "a number from 0 to below 1, such as 0.1", lambda fraction: 0 <= fraction < 1)


def _bits(text: str) -> float:
    return number(text, "a number above 0, such as 40", lambda bits: bits > 0)


def _columns(text: str) -> int:
    return whole(text, at_least=1, at_most=MOST_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersOptions:
    """Cohort sizes, the threat model and the vector's size; or committees.

    Raises:
        UsageError: corrupt helpers of no committee.
    """

    clients: tuple[int, ...] = option(
        "cohort sizes",
        lambda text: wholes(text, at_least=2, at_most=MAX_CLIENTS),
        default=(10, 100, 1000, 10000),
        metavar="N,...",
    )
    corruption: float = option("largest fraction that colludes", _fraction, default=0.1, metavar="RATE")
    dropout: float = option("largest fraction that drops out", _fraction, default=0.3, metavar="RATE")
    security_bits: float = option("privacy fails with probability 2^-BITS at most", _bits, default=40.0, metavar="BITS")
    correctness_bits: float = option(
        "a sum is stuck with probability 2^-BITS at most", _bits, default=20.0, metavar="BITS"
    )
    features: int = option("columns of the Gram", _columns, default=512, metavar="N")
    targets: int = option("columns of the cross-correlation", _columns, default=10, metavar="N")
    helpers: tuple[int, ...] = option(
        "committees of so many helpers, instead of masked sums",
        lambda text: wholes(text, at_least=1, at_most=MOST_HELPERS),
        default=(),
        metavar="M,...",
        shown="none",
    )
    corrupt: tuple[int, ...] = option(
        "how many of the helpers may collude with the server",
        lambda text: wholes(text, at_least=0, at_most=MOST_HELPERS - 1),
        default=(),
        metavar="F,...",
        shown="all numbers from 1",
    )

    def __post_init__(self) -> None:
        if self.corrupt and not self.helpers:
            raise UsageError("--corrupt counts helpers of a committee, and there is none; add --helpers M")


def run(options: ParametersOptions) -> int:
    """Print the table, once all of it is known.

    Raises:
        secagg.errors.ConfigurationError: a threat model that no parameters meet.
    """
    rows = list(_of_committees(options) if options.helpers else _of_masked_sums(options))
    print(f"| {' | '.join(rows[0])} |")
    print("|" + " ---: |" * len(rows[0]))
    print("\n".join(f"| {' | '.join(row.values())} |" for row in rows))
    return 0


def _of_masked_sums(options: ParametersOptions) -> Iterator[dict[str, str]]:
    for n_clients, malicious in itertools.product(options.clients, (False, True)):
        assumptions = Assumptions(
            corruption=options.corruption,
            dropout=options.dropout,
            malicious_server=malicious,
            security_bits=options.security_bits,
            correctness_bits=options.correctness_bits,
        )
        yield _row(options, n_clients, assumptions)


def _of_committees(options: ParametersOptions) -> Iterator[dict[str, str]]:
    layout = layout_of_statistics(options.clients[0], n_features=options.features, n_targets=options.targets)
    for n_helpers in options.helpers:
        for corrupt in options.corrupt or _that_fit(n_helpers):
            yield _committee_row(committee_sum(n_helpers, corrupt, layout))


def _that_fit(n_helpers: int) -> Iterable[int]:
    """Numbers of corrupt helpers whose seeds a client can afford."""
    helpers = tuple(range(n_helpers))
    return [
        corrupt for corrupt in range(1, n_helpers) if ReplicatedSharing(helpers, corrupt).n_seeds <= MOST_SEEDS
    ] or [0]


def _committee_row(config: CommitteeSum) -> dict[str, str]:
    """Return the cells of a row by column."""
    cost, guarantee, seed_sharing = config.costs[CLIENT_ROLE], config.guarantee, config.seed_sharing
    return {
        "helpers": f"{len(config.helpers)}",
        "may collude": f"{config.corrupt}",
        "may be unavailable or malicious": f"{guarantee.helper_dropout_tolerance}",
        "malicious helpers detected": f"{guarantee.detects_malicious_helpers}",
        "quorum": f"{seed_sharing.quorum}",
        "AES streams": f"{seed_sharing.n_seeds}",
        "seeds of a helper": f"{seed_sharing.seeds_per_helper}",
        "bytes beyond the vector": f"{cost.bytes_up - cost.vector_bytes}",
        "of the vector": f"{cost.vector_bytes}",
    }


def _row(options: ParametersOptions, n_clients: int, assumptions: Assumptions) -> dict[str, str]:
    """Return the cells of a row by column."""
    found = plan(n_clients, assumptions)
    planned = planned_sum(n_clients, assumptions, n_features=options.features, n_targets=options.targets)
    cost = planned.costs[CLIENT_ROLE]
    return {
        "clients": f"{n_clients}",
        "server": "malicious" if assumptions.malicious_server else "semi-honest",
        "neighbours": f"{found.degree}{' (all)' if found.is_complete else ''}",
        "threshold": f"{found.threshold}",
        "survivors needed": f"{planned.survivors_needed}",
        "opened": _power(found.log2_opened),
        "split": _power(found.log2_split),
        "stuck": _power(found.log2_stuck),
        "messages up": f"{cost.messages_up}",
        "bytes up": f"{cost.bytes_up}",
        "of them vector": f"{cost.vector_bytes}",
        "bytes down": f"{cost.bytes_down}",
    }


def _power(power: float) -> str:
    return "never" if power == float("-inf") else f"2^{power:.1f}"


COMMAND = Command(
    name="parameters",
    summary="show guarantees and costs of masked sums by cohort size, or of committees by their helpers",
    examples="""examples:
  analytic-secagg parameters
      10 to 10 000 clients, 10 % corrupt, 30 % dropouts, both kinds of server
  analytic-secagg parameters --clients 50,200 --corruption 0.2 --dropout 0.1 --features 1024
      your own cohort sizes and threat model
  analytic-secagg parameters --helpers 4 --corrupt 1
      a committee of four, one of whom may collude with the server

The table is Markdown, for documents.
""",
    options=ParametersOptions,
    run=run,
    fine="the table is printed",
)
