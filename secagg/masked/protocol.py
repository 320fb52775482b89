"""Masked sums: the public parameters, checked when they are made, and everybody's sessions."""

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

    Keys, shares, masked vector, (with identities: agreement on the survivors,) unmasking. The server learns the sum
    over at least ``survivors_needed`` clients and nothing else, unless it colludes with more clients than assumed. What
    travels are masked ring words, or, with ``Encrypted`` as the encoder, their ciphertexts.

    Args:
        threshold: shares that open a secret. None takes the lowest that ``assumptions`` allow on this graph; on the
            complete graph without ``assumptions`` two thirds of the cohort, rounded down, plus one.
        degree: neighbours of a client in a sparse graph, even: an expander with identities, a Harary graph without;
            None is the complete graph.
        graph_seed: public seed of the sparse graph, 16 to 64 bytes, fixed by nobody who could gain from it: a server
            that chooses it after it knows whom it controls can surround a client. ``seed_of_beacon`` makes one that
            sites can check.
        assumptions: what the cohort is promised to be. None promises nothing beyond what the threshold implies.
        identities: with them survivor sets are signed too and the server may be malicious; without, it must be
            semi-honest: it may look, but not lie.
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
        """The sum on the sparsest graph that meets the assumptions; the complete graph where none does."""
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
        """The mode's name."""
        return self.encoder.name_of("masked")

    def digest_of(self, type_: MessageType | None) -> bytes:
        """Return the set-up's digest for its messages: they may travel before layout and context are known."""
        return self.setup_digest if type_ in SETUP_MESSAGES else self.digest

    @property
    def holders(self) -> int:
        """How many hold a share of a client's secrets: its neighbours and itself."""
        return len(self.clients) if self.degree is None else self.degree + 1

    @property
    def shares_needed(self) -> int:
        """Shares that open a secret: the threshold, with its default worked out."""
        if self.threshold is not None:
            return self.threshold
        if self.degree is None and self.assumptions is not None:
            return complete_plan(len(self.clients), self.assumptions).threshold
        return two_thirds(self.clients)

    @property
    def corrupt(self) -> int:
        """Largest number of clients that may collude with the server and open no other client's secrets."""
        n = len(self.clients)
        if self.assumptions is not None:
            return self.assumptions.corrupt(n)
        return 2 * self.shares_needed - n - 1 if self.is_authenticated else self.shares_needed - 1

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        n = len(self.clients)
        fewest = self.shares_needed if self.degree is None else n - self._promised().dropouts(n)
        return max(fewest, self.signatures_needed)

    @property
    def max_colluding_clients(self) -> int:
        """Largest number that may collude with the server: they open no secret, and every total holds two others."""
        return min(self.corrupt, max_colluding_clients(self.survivors_needed))

    @property
    def signatures_needed(self) -> int:
        """Signatures on one survivor set, so that no two different sets can have as many; 0 without identities."""
        return (len(self.clients) + self.corrupt) // 2 + 1 if self.is_authenticated else 0

    def neighbours(self, party: PartyId) -> tuple[PartyId, ...]:
        """The clients that ``party`` shares pairwise masks and secret shares with, ascending."""
        if self.degree is None:
            return tuple(other for other in self.clients if other != party)
        near = expander_neighbours if self.signs_peers else harary_neighbours
        return near(self.clients, self.degree, self.graph_seed, party)

    @property
    def signs_peers(self) -> bool:
        """Whether clients sign whom they masked with: where the graph is sparse and the server may lie."""
        return self.degree is not None and self.is_authenticated

    def unrecoverable(self, survivors: Collection[PartyId]) -> PartyId | None:
        """A survivor whose secrets fewer survivors hold than it takes, so that no sum may be unmasked; None if none.

        Where peers are signed alone; elsewhere too few shares say the same.
        """
        if self.degree is None or not self.signs_peers:
            return None
        holders, party = fewest_holders(self.clients, self.degree, self.graph_seed, survivors)
        return party if holders < self.shares_needed else None

    def point(self, party: PartyId) -> int:
        """Where a client's Shamir shares are evaluated: its place in the cohort, from 1."""
        return self.index(party) + 1

    @property
    def guarantee(self) -> Guarantee:
        """Uploads open to the server with as many clients as hold a secret's threshold, and with the key holder."""
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
        """A client's, and of whom the encoder needs."""
        return {CLIENT_ROLE: client_cost(self), **self.encoder.helper_costs(self)}

    def explain(self) -> str:
        """What these parameters guarantee and cost, in words and numbers."""
        return "\n".join([explain(self), *self.encoder.explain(self)])

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Return a client's session; with a roster of identities it needs the client's own signing key."""
        if client_input is None:
            raise InvalidVectorError("a client needs its vector, or a call that makes it; none was given")
        return MaskedClient(self, party, client_input, secrets=secrets, entropy=entropy)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Return the server's session; it draws no entropy."""
        return MaskedServer(self, secrets=secrets)

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return the upload, as far as its encoder opens, less every mask whose seed the coalition can rebuild."""
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
                "identities are for a server that may lie; state malicious_server=True, so that the threshold is right"
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
        """Refuse a graph and threshold that do not keep what the assumptions ask for."""
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
