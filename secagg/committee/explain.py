"""What the parameters of a committee sum guarantee and cost, in words and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secagg.committee.messages import entry_bytes
from secagg.config import harmless_colluders
from secagg.costs import COUNT_BYTES, PARTY_BYTES, PartyCost

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


def client_cost(config: CommitteeSum) -> PartyCost:
    """A client's; a test holds it against a real run."""
    vector = config.layout.wire_bytes
    seeds = COUNT_BYTES + len(config.helper_keys) * (PARTY_BYTES + entry_bytes(config))
    return PartyCost.of_payloads([seeds + vector], [], vector_bytes=vector, signature_bytes=config.signature_bytes)


def helper_cost(config: CommitteeSum) -> PartyCost:
    """A helper's; a test holds it against a real run."""
    n, vector = len(config.clients), config.layout.wire_bytes
    request, answer = COUNT_BYTES + n * (PARTY_BYTES + entry_bytes(config)), COUNT_BYTES + n * PARTY_BYTES + vector
    return PartyCost.of_payloads([answer], [request], vector_bytes=vector, signature_bytes=config.signature_bytes)


def explain(config: CommitteeSum) -> str:
    """A paragraph a line: who must not collude, how many must stay, what it costs."""
    n_helpers = len(config.helper_keys)
    helpers, all_helpers = ("1 helper", "the helper") if n_helpers == 1 else (f"{n_helpers} helpers", "all helpers")
    server = (
        "the server may lie: the roster's identities sign all that is said, and helpers count only seeds so signed"
        if config.guarantee.server_may_lie
        else "SEMI-HONEST: the server may look on but not lie; there are no identities (for simulations)"
    )
    return "\n".join(
        [
            f"{config.name} sum over {len(config.clients)} clients, {helpers}, session "
            f"{config.session_id.hex()[:16]}...",
            f"  {server}",
            f"  private unless the server colludes with {all_helpers}, and while at most "
            f"{harmless_colluders(config.survivors_needed)} of the {len(config.clients)} clients collude with the "
            "server: they take their own vectors off a total",
            f"  a total holds at least {config.survivors_needed} clients, else no helper takes its masks off",
            f"  {all_helpers} must answer, else no total is released; a client may vanish whenever it likes",
            f"  a client {client_cost(config)}",
            f"  a helper {helper_cost(config)}",
        ]
    )
