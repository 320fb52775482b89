"""What the parameters of a masked sum guarantee and cost, in words and numbers."""

from __future__ import annotations

from dataclasses import dataclass

from secagg.masked.assumptions import complete_plan
from secagg.masked.messages import COMMITMENT_BYTES, SEALED_BYTES
from secagg.masked.parameters import MaskedParameters
from secagg.primitives.agreement import PUBLIC_KEY_BYTES
from secagg.primitives.identity import SIGNATURE_BYTES
from secagg.primitives.shamir import SHARE_BYTES
from secagg.wire import HEADER_BYTES

_COUNT = 4
_PARTY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCost:
    """What one client sends and receives when nobody drops out.

    Args:
        messages_up: messages sent.
        bytes_up: bytes sent, of which ``vector_bytes`` are the masked vector.
        bytes_down: bytes received.
        vector_bytes: ceil(bits / 8) bytes an entry.
    """

    messages_up: int
    bytes_up: int
    bytes_down: int
    vector_bytes: int


def client_cost(config: MaskedParameters) -> ClientCost:
    """The cost from the message formats; a test holds it against a real run."""
    neighbours = config.holders - 1
    keys = 2 * PUBLIC_KEY_BYTES + (SIGNATURE_BYTES if config.is_authenticated else 0)
    sealed = _COUNT + neighbours * (_PARTY + SEALED_BYTES)
    vector = config.vector_bytes
    revealed = 2 * _COUNT + (neighbours + 1) * (_PARTY + SHARE_BYTES)
    up = [keys, COMMITMENT_BYTES + sealed, vector, revealed]
    down = [_COUNT + neighbours * (_PARTY + keys), sealed, _COUNT]
    if config.is_authenticated:
        up.append(SIGNATURE_BYTES)
        down.append(_COUNT + config.signatures_needed * (_PARTY + SIGNATURE_BYTES))
    return ClientCost(
        messages_up=len(up),
        bytes_up=sum(up) + len(up) * HEADER_BYTES,
        bytes_down=sum(down) + len(down) * HEADER_BYTES,
        vector_bytes=vector,
    )


def explain(config: MaskedParameters) -> str:
    """A paragraph a line: the graph, who must not collude, what may go wrong and how likely, what it costs."""
    n = len(config.clients)
    cost = client_cost(config)
    graph = "complete graph" if config.degree is None else f"Harary graph of degree {config.degree}"
    server = (
        "the server may lie: keys and survivor sets are signed by the roster's identities"
        if config.is_authenticated
        else "SEMI-HONEST: the server may look on but not lie; there are no identities (for simulations)"
    )
    return "\n".join(
        [
            f"{config.name} sum over {n} clients, {graph}, session {config.session_id.hex()[:16]}...",
            f"  {server}",
            f"  a secret is shared among {config.holders} holders; {config.shares_needed} of them open it",
            f"  private while at most {config.corrupt} of the {n} clients collude with the server",
            f"  a total holds at least {config.survivors_needed} clients, else none is released"
            + (f"; {config.signatures_needed} must sign the survivor set" if config.is_authenticated else ""),
            *_probabilities(config),
            f"  a client sends {cost.messages_up} messages, {cost.bytes_up} bytes "
            f"({cost.vector_bytes} of them the vector), and receives {cost.bytes_down} bytes",
        ]
    )


def _probabilities(config: MaskedParameters) -> list[str]:
    n, promised = len(config.clients), config.assumptions
    if promised is None:
        return ["  no corruption or dropout rate was promised: the two lines above hold for certain"]
    plan = complete_plan(n, promised) if config.degree is None else promised.plan_for(n, config.degree)
    if plan is None:  # the parameters check themselves, so this line is for readers of half-made objects only
        return []
    return [
        f"  promised: at most {promised.corrupt(n)} corrupt clients and {promised.dropouts(n)} dropouts; then",
        f"    some client's secrets can be opened with probability <= {_power(plan.log2_opened)}",
        f"    the sum falls into parts               with probability <= {_power(plan.log2_split)}",
        f"    the sum gets stuck                     with probability <= {_power(plan.log2_stuck)}",
    ]


def _power(log2: float) -> str:
    return "0" if log2 == float("-inf") else f"2^{log2:.1f}"
