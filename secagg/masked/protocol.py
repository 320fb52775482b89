"""Masked sums: public parameters, checked on construction, and the sessions of all parties."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from secagg.beacon import DrawnGraph
from secagg.config import max_colluding_clients, two_thirds
from secagg.costs import PartyCost
from secagg.encoder import EncodedSum
from secagg.encoding import length_prefixed
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, InvalidVectorError
from secagg.layout import Layout
from secagg.masked.adversary import unmask_upload
from secagg.masked.assumptions import Assumptions, complete_plan, plan
from secagg.masked.client import MaskedClient
from secagg.masked.explain import client_cost, explain
from secagg.masked.graph import expander_neighbours, fewest_holders, harary_neighbours
from secagg.masked.server import MaskedServer
from secagg.masked.states import SETUP_MESSAGES
from secagg.ring import RingVector
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession
from secagg.sums import CLIENT_ROLE, NO_SECRETS, CoalitionView, Guarantee, PartySecrets, Upload
from secagg.wire import MessageType


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSum(EncodedSum):
    """A sum of doubly masked vectors: Bonawitz et al., CCS 2017, Fig. 4, on the graph of Bell et al., CCS 2020.

    The rounds are keys, secret shares, masked vectors, with identities agreement on the survivors, and unmasking. The
    server learns the sum over at least ``survivors_needed`` clients and nothing else, unless more clients than assumed
    collude with it. Uploads are masked ring words or, with an ``Encrypted`` encoder, their ciphertexts.

    Args:
        layout: see ``secagg.config.SumConfig``; likewise ``clients``, ``session_id``, ``context``, ``server_identity``.
        threshold: Shamir threshold of the clients' secrets. None takes the lowest that ``assumptions`` allow; without
            assumptions, on the complete graph, two thirds of the cohort, rounded down, plus one.
        degree: number of neighbours in a sparse graph, even: an expander with identities, a Harary graph without. None
            takes the complete graph.
        graph_seed: public seed of the sparse graph, 16 to 64 bytes. A server that chooses it knowing the colluding
            clients could surround a client with them; ``seed_of_beacon`` derives a seed that sites can verify.
        assumptions: threat model of the cohort. None assumes nothing beyond the threshold.
        identities: Ed25519 public keys, aligned with ``clients``. With them clients sign the survivor set and the
            server may be malicious; without them it must be semi-honest.

    Raises:
        ConfigurationError: the parameters are unsafe or contradict each other.

    >>> import numpy as np
    >>> from secagg import new_session_id, run_in_memory
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> protocol = MaskedSum(layout=layout, clients=(1, 2, 3, 4), session_id=new_session_id())
    >>> run = run_in_memory(protocol, {party: np.array([party, 10]) for party in protocol.clients})
    >>> run.result.total, run.result.survivors
    (array([10, 40]), (1, 2, 3, 4))
    """

    MASKED: ClassVar[bool] = True

    threshold: int | None = None
    degree: int | None = None
    graph_seed: bytes = b""
    assumptions: Assumptions | None = None
    setup_digest: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.clients) < 2:
            raise ConfigurationError("masks need at least 2 clients: the sum of one client is its vector")
        EncodedSum.__post_init__(self)
        setup = length_prefixed(b"masked set-up", self.session_id, *self._parties(), *self._own_parameters())
        object.__setattr__(self, "setup_digest", hashlib.sha256(setup).digest())

    @classmethod
    def planned(
        cls,
        *,
        layout: Layout,
        clients: tuple[PartyId, ...],
        session_id: bytes,
        assumptions: Assumptions,
        context: bytes = b"",
        graph_seed: bytes = b"",
        identities: tuple[bytes, ...] = (),
        server_identity: bytes = b"",
    ) -> Self:
        """Create the sum on the sparsest graph that meets the assumptions, or on the complete graph.

        Raises:
            ConfigurationError: not even the complete graph meets the assumptions.
        """
        found = plan(len(clients), assumptions)
        return cls(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            threshold=found.threshold,
            degree=None if found.is_complete else found.degree,
            graph_seed=b"" if found.is_complete else graph_seed,
            assumptions=assumptions,
            identities=identities,
            server_identity=server_identity,
        )

    @property
    def name(self) -> str:
        """Name of the mode."""
        return self.encoder.name_of("masked")

    def digest_of(self, type_: MessageType | None) -> bytes:
        """Return the digest in the header of messages of a type; that of the set-up for set-up messages."""
        return self.setup_digest if type_ in SETUP_MESSAGES else self.digest

    @property
    def holders(self) -> int:
        """Number of holders of a client's shares: its neighbours and itself."""
        return len(self.clients) if self.degree is None else self.degree + 1

    @property
    def shares_needed(self) -> int:
        """The Shamir threshold, with its default resolved."""
        if self.threshold is not None:
            return self.threshold
        if self.degree is None and self.assumptions is not None:
            return complete_plan(len(self.clients), self.assumptions).threshold
        return two_thirds(self.clients)

    @property
    def corrupt(self) -> int:
        """Largest number of colluding clients that cannot reconstruct another client's secrets."""
        n = len(self.clients)
        if self.assumptions is not None:
            return self.assumptions.corrupt(n)
        return 2 * self.shares_needed - n - 1 if self.is_authenticated else self.shares_needed - 1

    @property
    def survivors_needed(self) -> int:
        """Minimum number of clients whose vectors a released total contains."""
        n = len(self.clients)
        fewest = self.shares_needed if self.degree is None else n - self._promised().dropouts(n)
        return max(fewest, self.signatures_needed)

    @property
    def max_colluding_clients(self) -> int:
        """Largest number of colluding clients with which every other client's vector stays hidden."""
        return min(self.corrupt, max_colluding_clients(self.survivors_needed))

    @property
    def signatures_needed(self) -> int:
        """Number of signatures that only one survivor set can have; 0 without identities."""
        return (len(self.clients) + self.corrupt) // 2 + 1 if self.is_authenticated else 0

    def neighbours(self, party: PartyId) -> tuple[PartyId, ...]:
        """Return the clients with which ``party`` shares pairwise masks and secret shares, ascending."""
        if self.degree is None:
            return tuple(other for other in self.clients if other != party)
        near = expander_neighbours if self.signs_peers else harary_neighbours
        return near(self.clients, self.degree, self.graph_seed, party)

    @property
    def signs_peers(self) -> bool:
        """True if clients sign their set of masking peers: on sparse graphs with identities."""
        return self.degree is not None and self.is_authenticated

    def unrecoverable(self, survivors: Collection[PartyId]) -> PartyId | None:
        """Return a survivor whose shares are held by fewer survivors than the threshold; None if there is none.

        Checked only if ``signs_peers``; otherwise the number of shares shows it.
        """
        if self.degree is None or not self.signs_peers:
            return None
        holders, party = fewest_holders(self.clients, self.degree, self.graph_seed, survivors)
        return party if holders < self.shares_needed else None

    def point(self, party: PartyId) -> int:
        """Return the evaluation point of a client's Shamir shares: its place in the cohort, from 1."""
        return self.index(party) + 1

    @property
    def guarantee(self) -> Guarantee:
        """Guarantees: the server needs a threshold of colluding clients, and the key holder, to read an upload."""
        promised = None if self.degree is None else self._promised()
        return Guarantee(
            min_survivors=self.survivors_needed,
            max_colluding_clients=self.max_colluding_clients,
            assumed_colluders=self.corrupt if self.assumptions is not None else 0,
            security_bits=promised.security_bits if promised else math.inf,
            correctness_bits=promised.correctness_bits if promised else math.inf,
            drawn_graph=DrawnGraph(clients=self.clients, seed=self.graph_seed) if promised else None,
            threshold=self.shares_needed,
            client_reconstruction_threshold=min(self.shares_needed, len(self.clients) - 1),
            reconstruction_helpers=self.helpers,
            malicious_server=self.is_authenticated,
            messages=5 if self.is_authenticated else 4,
            vector_message=3,
            upload=Upload.CIPHERTEXT if self.helpers else Upload.UNIFORM,
        )

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """Costs of a client and of the encoder's helpers."""
        return {CLIENT_ROLE: client_cost(self), **self.encoder.helper_costs(self)}

    def explain(self) -> str:
        """Describe in words and numbers what these parameters guarantee and cost."""
        return "\n".join([explain(self), *self.encoder.explain(self)])

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Create a client's session; with identities ``secrets`` must contain its signing key."""
        if client_input is None:
            raise InvalidVectorError("a client needs its vector, or a call that makes it; none was given")
        return MaskedClient(self, party, client_input, secrets=secrets, entropy=entropy)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Create the server's session; it uses no ``entropy``."""
        return MaskedServer(self, secrets=secrets)

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return the decoded upload minus every mask whose seed the coalition can reconstruct."""
        carried = self.encoder.opened(self, knowledge, target)
        return None if carried is None else unmask_upload(self, knowledge, target, carried)

    def _promised(self) -> Assumptions:
        if self.assumptions is None:
            raise ConfigurationError(
                "a sparse graph is only as good as its assumptions, and none are stated; pass assumptions, or take "
                "MaskedSum.planned"
            )
        return self.assumptions

    def _check(self) -> None:
        self._check_graph()
        self._check_server()
        self._check_threshold()
        self.encoder.check(self)

    def _check_graph(self) -> None:
        n = len(self.clients)
        if type(self.graph_seed) is not bytes:
            raise ConfigurationError(f"a graph seed is bytes, not {type(self.graph_seed).__name__}; encode it")
        if self.degree is None:
            return
        self._promised()
        if self.degree % 2 or not 2 <= self.degree < n - 1:
            raise ConfigurationError(
                f"the degree of a sparse graph over {n} clients must be even and 2 to {n - 2}, not {self.degree}; "
                "None takes the complete graph"
            )
        if self.threshold is None:
            raise ConfigurationError("a sparse graph needs its threshold; state it, or let MaskedSum.planned find it")
        if not 16 <= len(self.graph_seed) <= 64:
            raise ConfigurationError(
                f"the sparse graph of {n} clients is drawn from a public seed of 16 to 64 bytes, not "
                f"{len(self.graph_seed)}; pass graph_seed=, of which seed_of_beacon makes one that no server chooses"
            )

    def _check_server(self) -> None:
        if not self.identities:
            if self.assumptions is not None and self.assumptions.malicious_server:
                raise ConfigurationError("against a malicious server every client needs an identity key in the roster")
            return
        if self.assumptions is not None and not self.assumptions.malicious_server:
            raise ConfigurationError(
                "with identities the assumptions need malicious_server=True, from which the threshold follows"
            )

    def _check_threshold(self) -> None:
        n, needed = len(self.clients), self.shares_needed
        least = 2 if self.degree is not None else n // 2 + 1
        if not least <= needed <= self.holders:
            raise ConfigurationError(
                f"the threshold must be more than half of the {n} clients and at most all of them, not {needed}: "
                "at half or below, a server could open both masks of one client"
                if self.degree is None
                else f"the threshold must be 2 to the {self.holders} holders of a secret, not {needed}"
            )
        if self.assumptions is not None:
            self._check_promise(self.assumptions)

    def _check_promise(self, assumptions: Assumptions) -> None:
        """Refuse a graph and threshold that do not meet the assumptions."""
        n = len(self.clients)
        safest = complete_plan(n, assumptions) if self.degree is None else assumptions.plan_for(n, self.degree)
        if safest is None or self.shares_needed < safest.threshold:
            needed = "another degree" if safest is None else f"a threshold of at least {safest.threshold}"
            raise ConfigurationError(
                f"degree {self.holders - 1} with threshold {self.shares_needed} does not meet the assumptions "
                f"{assumptions}; take {needed}, or let MaskedSum.planned choose"
            )

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            self.shares_needed.to_bytes(4, "big"),
            (self.degree or 0).to_bytes(4, "big"),
            self.graph_seed,
            self.survivors_needed.to_bytes(4, "big"),
            self.signatures_needed.to_bytes(4, "big"),
            *([*self.encoder.digested, self.encoder.holder_identity] if self.encoder.digested else []),
        )
