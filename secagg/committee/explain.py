"""Text about the guarantees and costs of committee sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secagg.committee.messages import HASH_BYTES, box_bytes, commitments_bytes, entry_bytes
from secagg.config import max_colluding_clients, of_two_clients
from secagg.costs import COUNT_BYTES, PARTY_BYTES, PartyCost
from secagg.primitives.identity import SIGNATURE_BYTES

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


def client_cost(config: CommitteeSum) -> PartyCost:
    """Return a client's cost, computed from the message formats; a test compares it with a real run."""
    vector = config.layout.wire_bytes
    boxes = COUNT_BYTES + len(config.helpers) * (PARTY_BYTES + box_bytes(config))
    upload = boxes + commitments_bytes(config) + config.signature_bytes + vector
    return PartyCost.of_payloads([upload], [], vector_bytes=vector, signature_bytes=config.signature_bytes)


def helper_cost(config: CommitteeSum) -> PartyCost:
    """Return the largest cost of a helper when all answer; a test compares it with a real run."""
    n, m, vector, seed_sharing = len(config.clients), len(config.helpers), config.layout.wire_bytes, config.seed_sharing
    survivors, n_sums = COUNT_BYTES + n * PARTY_BYTES, -(-seed_sharing.n_seeds // m)
    signs = config.is_authenticated
    n_signatures = m if signs else 0
    certificate = survivors + COUNT_BYTES + n_signatures * (PARTY_BYTES + SIGNATURE_BYTES)
    down = [COUNT_BYTES + n * (PARTY_BYTES + entry_bytes(config)), *([survivors] if signs else []), certificate]
    up = [COUNT_BYTES, *([SIGNATURE_BYTES] if signs else []), seed_sharing.seeds_per_helper * HASH_BYTES]
    return PartyCost.of_payloads(
        [*up, COUNT_BYTES + n_sums * (PARTY_BYTES + vector)],
        [*down, COUNT_BYTES + n_sums * PARTY_BYTES],
        vector_bytes=n_sums * vector,
        signature_bytes=config.signature_bytes,
    )


def explain(config: CommitteeSum) -> str:
    """Describe trust assumptions, dropout tolerance and costs, one per line."""
    guarantee, n_helpers = config.guarantee, len(config.helpers)
    all_helpers = "the helper" if n_helpers == 1 else "all helpers"
    opening = all_helpers if config.corrupt + 1 == n_helpers else f"{config.corrupt + 1} of the {n_helpers} helpers"
    server = (
        "MALICIOUS SERVER: all messages are signed by the roster's identities, helpers accept signed seeds only, and "
        f"reveal mask sums only of survivors that {config.seed_sharing.quorum} of them signed"
        if guarantee.malicious_server
        else "SEMI-HONEST: the server must follow the protocol: there are no identities (for simulations), so helpers "
        "do not agree on the survivors, and two helpers with different sets can reveal a client's vector to the server"
    )
    away = (
        f"{guarantee.helper_dropout_tolerance} of the {n_helpers} helpers may drop out or be malicious, and the total "
        "is exact"
        if guarantee.helper_dropout_tolerance
        else f"{all_helpers} must answer, else no total is released"
    )
    lies = (
        f"a wrong total takes {guarantee.detects_malicious_helpers + 1} colluding malicious helpers"
        if guarantee.detects_malicious_helpers
        else "a malicious helper can change the total undetected"
    )
    return "\n".join(
        [
            f"{config.name} sum over {len(config.clients)} clients, {n_helpers} helper{'s' * (n_helpers > 1)}, session "
            f"{config.session_id.hex()[:16]}...",
            f"  {server}",
            f"  private unless the server colludes with {opening}, and while at most "
            f"{max_colluding_clients(config.survivors_needed)} of the {len(config.clients)} clients collude with the "
            "server: they can subtract their own vectors from a total",
            f"  a total holds at least {config.survivors_needed} clients, else no helper reveals its mask sums",
            *of_two_clients(config.survivors_needed),
            f"  {away}; a client may drop out at any time",
            f"  {lies}",
            f"  a client {client_cost(config)}",
            f"  a helper {helper_cost(config)}",
        ]
    )
