"""Text about the guarantees and costs of masked sums."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from secagg.config import of_two_clients
from secagg.costs import COUNT_BYTES, PARTY_BYTES, PartyCost
from secagg.masked.assumptions import complete_plan
from secagg.masked.messages import COMMITMENT_BYTES, SEALED_BYTES
from secagg.primitives.agreement import PUBLIC_KEY_BYTES
from secagg.primitives.identity import SIGNATURE_BYTES
from secagg.primitives.shamir import SHARE_BYTES
from secagg.wire import HEADER_BYTES, PART_SIZE_BYTES

if TYPE_CHECKING:
    from secagg.masked.protocol import MaskedSum


def client_cost(config: MaskedSum) -> PartyCost:
    """Return a client's cost, computed from the message formats; a test compares it with a real run."""
    neighbours = config.holders - 1
    keys = 2 * PUBLIC_KEY_BYTES
    sealed = COUNT_BYTES + neighbours * (PARTY_BYTES + SEALED_BYTES)
    revealed = 2 * COUNT_BYTES + (neighbours + 1) * (PARTY_BYTES + SHARE_BYTES)
    peers = SIGNATURE_BYTES if config.signs_peers else 0
    up = [keys, COMMITMENT_BYTES + sealed, peers + config.vector_bytes, revealed]
    down = [COUNT_BYTES + neighbours * (PARTY_BYTES + keys + config.signature_bytes), sealed, COUNT_BYTES]
    if config.is_authenticated:
        up.append(SIGNATURE_BYTES)
        down.append(COUNT_BYTES + config.signatures_needed * (PARTY_BYTES + SIGNATURE_BYTES))
    if config.signs_peers:
        down[1] += COUNT_BYTES
        down[3] += COUNT_BYTES + neighbours * (PARTY_BYTES + SIGNATURE_BYTES)
    return PartyCost.of_payloads(up, down, vector_bytes=config.vector_bytes, signature_bytes=config.signature_bytes)


def later_cost(config: MaskedSum) -> PartyCost:
    """Return a client's cost of a later sum of a series; a test compares it with a real run.

    The messages are the same, bundled: the next sum's keys with the vector, its roster with the unmask request, its
    shares with the answer to that request.
    """
    alone, further_rounds = client_cost(config), 1 if config.is_authenticated else 0
    beside = HEADER_BYTES + config.signature_bytes
    bundles, parts_up, parts_down = 2 + further_rounds, 4 + further_rounds, 3 + further_rounds
    return replace(
        alone,
        messages_up=bundles,
        bytes_up=alone.bytes_up + parts_up * PART_SIZE_BYTES + bundles * beside,
        bytes_down=alone.bytes_down + parts_down * PART_SIZE_BYTES + bundles * beside,
    )


def explain(config: MaskedSum) -> str:
    """Describe the graph, trust assumptions, failure probabilities and costs, one per line."""
    what = f"{config.name} sum over {_cohort(config)}, session {config.session_id.hex()[:16]}..."
    return "\n".join([what, *_guarantees(config), f"  a client {client_cost(config)}"])


def explain_series(config: MaskedSum) -> str:
    """Describe a multi-round session, from the parameters of any of its sums."""
    return "\n".join(
        [
            f"multi-round session of {config.name} sums over {_cohort(config)}",
            "  each sum has keys, seeds and shares of its own",
            *_guarantees(config),
            f"  in the first sum a client sends {client_cost(config).messages_up} messages; the last of them contain "
            "the second sum's set-up",
            f"  in each sum after it a client {later_cost(config)}",
            "  a client that misses a vector or an unmasking stays out until a new session begins",
        ]
    )


def _cohort(config: MaskedSum) -> str:
    kind = "expander" if config.signs_peers else "Harary graph"
    graph = "complete graph" if config.degree is None else f"{kind} of degree {config.degree}"
    return f"{len(config.clients)} clients, {graph}"


def _guarantees(config: MaskedSum) -> list[str]:
    server = (
        "MALICIOUS SERVER: all messages and the survivor set are signed by the roster's identities"
        if config.guarantee.malicious_server
        else "SEMI-HONEST: the server must follow the protocol; there are no identities (for simulations)"
    )
    return [
        f"  {server}",
        f"  a secret is shared among {config.holders} holders; {config.shares_needed} of them reconstruct it",
        f"  private while at most {config.max_colluding_clients} of the {len(config.clients)} clients collude with the "
        "server",
        f"  a total holds at least {config.survivors_needed} clients, else none is released"
        + (f"; {config.signatures_needed} must sign the survivor set" if config.is_authenticated else ""),
        *of_two_clients(config.survivors_needed),
        *_probabilities(config),
    ]


def _probabilities(config: MaskedSum) -> list[str]:
    n, promised = len(config.clients), config.assumptions
    if promised is None:
        return ["  these limits are exact, not probabilistic"]
    plan = complete_plan(n, promised) if config.degree is None else promised.plan_for(n, config.degree)
    assert plan is not None, "the parameters checked that there is a plan"
    return [
        f"  assumed: at most {promised.corrupt(n)} corrupt clients and {promised.dropouts(n)} dropouts; then",
        f"    some client's secrets are reconstructed with probability <= {_power(plan.log2_opened)}",
        f"    the sum falls into parts                with probability <= {_power(plan.log2_split)}",
        f"    the sum cannot be completed             with probability <= {_power(plan.log2_stuck)}",
    ]


def _power(log2: float) -> str:
    return "0" if log2 == float("-inf") else f"2^{log2:.1f}"
