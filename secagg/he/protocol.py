"""Encrypted sums as `SumProtocol`s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import count
from typing import ClassVar, Self

from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError
from secagg.he.choice import choose_parameters
from secagg.he.client import EncryptedClient
from secagg.he.config import EncryptedSumParameters
from secagg.he.contexts import generate_contexts, load_secret
from secagg.he.key_holder import KeyHolder
from secagg.he.parameters import EncryptionParameters, Scheme
from secagg.he.server import EncryptedServer
from secagg.layout import Layout
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedSum(EncryptedSumParameters):
    """A sum of homomorphically encrypted vectors; the base of ``CkksSum`` and ``BfvSum``.

    Each client sends one message, its vector encrypted to the key holder. The server adds ciphertexts and has no key;
    the key holder decrypts the sum, once, if it is over enough clients. The total is the same integers as in the clear.
    Who sees what: the key holder the total; the server, once it is released, the total; both together everything. The
    server must be semi-honest: it could pass one client's ciphertext for the sum (masks under the encryption
    prevent that).

    Args:
        secret_context: the secret key, where it is held; neither public nor in the digest.
    """

    SCHEME: ClassVar[Scheme]

    secret_context: bytes | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.parameters.scheme != self.SCHEME:
            raise ConfigurationError(
                f"{type(self).__name__} needs {self.SCHEME} parameters, not {self.parameters.scheme}"
            )
        EncryptedSumParameters.__post_init__(self)
        if self.secret_context is not None:
            load_secret(self.parameters, self.secret_context)

    @classmethod
    def generate(
        cls,
        *,
        layout: Layout,
        clients: tuple[PartyId, ...],
        session_id: bytes,
        context: bytes = b"",
        parameters: EncryptionParameters | None = None,
        key_holder: PartyId | None = None,
        min_survivors: int | None = None,
    ) -> Self:
        """The key holder's view with fresh keys: what a simulation runs, or gives away ``without_secrets``.

        Args:
            layout: the vectors.
            clients: the cohort.
            session_id: 16 to 64 fresh bytes.
            context: digest of everything that clients received before this sum.
            parameters: None chooses those with the smallest upload.
            key_holder: None takes the first number that no client has.
            min_survivors: None asks for two thirds, rounded down, plus one.
        """
        chosen = parameters or choose_parameters(layout, len(clients), scheme=cls.SCHEME)
        keys = generate_contexts(chosen)
        return cls(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            parameters=chosen,
            public_context=keys.public_context,
            key_holder=_free_number(clients) if key_holder is None else key_holder,
            min_survivors=2 * len(clients) // 3 + 1 if min_survivors is None else min_survivors,
            secret_context=keys.secret_context,
        )

    def without_secrets(self) -> Self:
        """What clients and server get: the same session, with the same digest, and no secret key."""
        public = {f.name: getattr(self, f.name) for f in fields(self) if f.init and f.name != "secret_context"}
        return type(self)(**public)

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        """A client's session. SEAL draws its randomness from the operating system; ``entropy`` is not used."""
        return EncryptedClient(self.without_secrets(), party, contribution)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session; it holds no secret key and draws no entropy."""
        return EncryptedServer(self.without_secrets())

    def helpers(self, *, entropy: Entropy = os_entropy) -> Mapping[PartyId, ClientSession]:
        """The key holder's session, where its secret key is.

        Raises:
            ConfigurationError: this is the public half only.
        """
        if self.secret_context is None:
            raise ConfigurationError(
                f"the secret context of the key holder, party {self.key_holder}, is not here; "
                "only the key holder makes its session"
            )
        session = KeyHolder(
            self.without_secrets(),
            party=self.key_holder,
            carrier=self.carrier,
            survivors_needed=self.min_survivors,
            secret_context=self.secret_context,
        )
        return {self.key_holder: session}


def _free_number(clients: tuple[PartyId, ...]) -> PartyId:
    taken = frozenset(clients)
    return next(party for party in count(1) if party not in taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class CkksSum(EncryptedSum):
    """An encrypted sum with CKKS: real slots that round to the exact integer.

    Source: Cheon, Kim, Kim and Song, "Homomorphic Encryption for Arithmetic of Approximate Numbers", ASIACRYPT 2017.
    """

    SCHEME: ClassVar[Scheme] = "ckks"


@dataclass(frozen=True, slots=True, kw_only=True)
class BfvSum(EncryptedSum):
    """An encrypted sum with BFV: integer slots.

    Source: Fan and Vercauteren, "Somewhat Practical Fully Homomorphic Encryption", ePrint 2012/144.
    """

    SCHEME: ClassVar[Scheme] = "bfv"
