"""Public parameters of every sum, and the digest that binds all keys and messages to them."""

from __future__ import annotations

import hashlib
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from secagg.encoding import length_prefixed
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, RemoteProtocolError
from secagg.layout import Layout
from secagg.primitives.identity import IDENTITY_BYTES, SIGNATURE_BYTES, IdentityKey, has_small_order
from secagg.sessions import ClientSession, FailureSession, PartyId
from secagg.sums import CLIENT_ROLE, NO_SECRETS, SERVER_ROLE, PartySecrets
from secagg.wire import MessageType

SERVER: PartyId = 0
"""Number of the server in message headers; no client or helper may have it."""

MAX_PARTY = 2**32 - 1
MAX_CLIENTS = 2**20


def new_session_id() -> bytes:
    """Return a fresh random session id of 16 bytes. Use an id for one sum only.

    >>> len(new_session_id())
    16
    """
    return secrets.token_bytes(16)


def free_numbers(clients: tuple[PartyId, ...]) -> Iterator[PartyId]:
    """Return the party numbers that no client has, ascending from 1."""
    taken = set(clients)
    return (number for number in count(1) if number not in taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumConfig:
    """Public parameters that all parties of one sum agree on before it starts.

    Each party builds them from its own knowledge. Parties that differ in any field have different ``digest`` values:
    their messages are refused and, even if a server forged the digest, their masks would not cancel.

    Args:
        layout: public shape of the vectors.
        clients: the cohort: numbers 1 to 2^32 - 1, ascending, without repeats.
        session_id: 16 to 64 bytes, fresh for every sum.
        context: digest of all that clients received before this sum (backbone, model, previous layers), at most 64
            bytes.
        identities: Ed25519 public keys, aligned with ``clients``, from a roster that the operator distributes. With
            identities every party signs every message; each mode states what this guarantees against a malicious
            server.
        server_identity: the server's Ed25519 public key. Required with ``identities``, as are those of helpers.

    Raises:
        ConfigurationError: the parameters are unsafe or contradict each other.
    """

    layout: Layout
    clients: tuple[PartyId, ...]
    session_id: bytes
    context: bytes = b""
    identities: tuple[bytes, ...] = field(default=(), repr=False)
    server_identity: bytes = field(default=b"", repr=False)
    digest: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = self.clients
        if not isinstance(self.layout, Layout):
            raise ConfigurationError(f"layout is a Layout, not {type(self.layout).__name__}; make it with Layout.of")
        if type(ids) is not tuple or any(type(party) is not int for party in ids):
            raise ConfigurationError(f"clients is a tuple of plain ints such as (1, 2, 3), not {str(ids)[:60]}")
        if not 1 <= len(ids) <= MAX_CLIENTS:
            raise ConfigurationError(f"a cohort has 1 to {MAX_CLIENTS} clients, not {len(ids)}")
        if len(set(ids)) != len(ids):
            twice = sorted(party for party, times in Counter(ids).items() if times > 1)
            raise ConfigurationError(f"client ids must differ; these came twice: {twice[:10]}")
        if list(ids) != sorted(ids) or ids[0] < 1 or ids[-1] > MAX_PARTY:
            raise ConfigurationError(f"client ids must be ascending numbers of 1 to {MAX_PARTY}; sort and number them")
        if not (type(self.session_id) is type(self.context) is bytes):
            came = f"{type(self.session_id).__name__} and {type(self.context).__name__}"
            raise ConfigurationError(f"session id and context are bytes, not {came}; new_session_id() draws an id")
        if not 16 <= len(self.session_id) <= 64:
            raise ConfigurationError(f"a session id takes 16 to 64 bytes, not {len(self.session_id)}; draw a fresh one")
        if len(self.context) > 64:
            raise ConfigurationError(f"the context is a digest of at most 64 bytes, not {len(self.context)}")
        self.layout.check_cohort(len(ids))
        self._check()
        self._check_identities()
        object.__setattr__(self, "digest", hashlib.sha256(self._canonical()).digest())

    @property
    def name(self) -> str:
        """The mode's name on the command line and in reports; part of the digest."""
        raise NotImplementedError

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Helpers of this sum; empty unless the mode has some."""
        return ()

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Public keys by role and party: identities of clients and server; a mode adds those of its helpers."""
        return self._signing_keys()

    def _signing_keys(self) -> dict[str, Mapping[PartyId, bytes]]:
        return {
            CLIENT_ROLE: dict(zip(self.clients, self.identities, strict=True)) if self.identities else {},
            SERVER_ROLE: {SERVER: self.server_identity} if self.server_identity else {},
        }

    @property
    def is_authenticated(self) -> bool:
        """True if every party signs its messages."""
        return bool(self.identities)

    @property
    def signature_bytes(self) -> int:
        """Length of the signature at the end of a message; 0 without identities."""
        return SIGNATURE_BYTES if self.is_authenticated else 0

    def digest_of(self, type_: MessageType | None) -> bytes:
        """Return the digest in the header of messages of a type; by default that of the configuration."""
        return self.digest

    def identity(self, party: PartyId) -> bytes:
        """Return a client's Ed25519 public key."""
        return self.identities[self.index(party)]

    def helper_identity(self, helper: PartyId) -> bytes:
        """Return the Ed25519 public key of one of ``helpers``; empty if it has none."""
        return b""

    def identity_of(self, party: PartyId) -> bytes:
        """Return the Ed25519 public key of a party; empty without identities, and for unknown parties."""
        if not self.is_authenticated:
            return b""
        if party == SERVER:
            return self.server_identity
        if party in self.helpers:
            return self.helper_identity(party)
        place = bisect_left(self.clients, party)
        return self.identities[place] if self.clients[place : place + 1] == (party,) else b""

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Refuse, unless the mode has helpers."""
        raise ConfigurationError(f"a {self.name} sum has no helpers; party {party} has no part in it")

    def failure(self, *, secrets: PartySecrets = NO_SECRETS) -> FailureSession | None:
        """Return None, unless the mode can certify a failure."""
        return None

    def check_failure(self, proof: bytes) -> None:
        """Refuse, unless the mode can certify a failure."""
        raise RemoteProtocolError(f"nobody certifies that a {self.name} sum failed; it counts as released", peer=SERVER)

    def signer(self, party: PartyId, secrets: PartySecrets) -> IdentityKey | None:
        """Return the signing key of a party; None without identities.

        Raises:
            ConfigurationError: the key is missing, does not match the roster, or is given in a session without
                identities (a helper may have one for other purposes).
        """
        public, identity = self.identity_of(party), secrets.identity
        whose = "the server" if party == SERVER else f"party {party}"
        if not public:
            if identity is not None and party not in self.helpers:
                raise ConfigurationError(
                    f"this session has no roster of identities; a signing key of {whose} serves no purpose in it"
                )
            return None
        if identity is None or identity.public != public:
            raise ConfigurationError(
                f"the roster's identity key of {whose} is needed to take part; "
                + ("none was given" if identity is None else "another one was given")
            )
        return identity

    def index(self, party: PartyId) -> int:
        """Return the index of a client in the cohort, from 0.

        Raises:
            ConfigurationError: ``party`` is not in the cohort.
        """
        place = bisect_left(self.clients, party)
        if place == len(self.clients) or self.clients[place] != party:
            raise ConfigurationError(f"party {party} is not in this session's cohort of {len(self.clients)} clients")
        return place

    def _canonical(self) -> bytes:
        """Return the canonical encoding of the configuration."""
        return length_prefixed(
            b"analytic-secagg/1",
            self.name.encode(),
            self.session_id,
            self.context,
            self.layout.canonical(),
            *self._parties(),
            *self._own_parameters(),
        )

    def _parties(self) -> tuple[bytes, ...]:
        """Return the encodings of clients and of identities."""
        clients = b"".join(party.to_bytes(4, "big") for party in self.clients)
        return clients, b"".join(self.identities), self.server_identity

    def _check(self) -> None:
        """Check the parameters that a mode adds; called before anything is derived from them."""

    def _check_identities(self) -> None:
        """Refuse a sum in which some parties have identities and others do not."""
        if bool(self.identities) != bool(self.server_identity):
            raise ConfigurationError("identities of clients and server go together: give both or neither")
        if not self.identities:
            return
        if len(self.identities) != len(self.clients):
            raise ConfigurationError(
                f"the roster needs one identity key a client: {len(self.clients)} clients, {len(self.identities)} keys"
            )
        of_helpers = [self.helper_identity(helper) for helper in self.helpers]
        if not all(of_helpers):
            raise ConfigurationError("where clients and server sign, helpers do: give an identity of each helper too")
        keys = (*self.identities, self.server_identity, *of_helpers)
        if others := sorted({type(key).__name__ for key in keys if type(key) is not bytes}):
            raise ConfigurationError(
                f"identities are public keys as bytes, in the order of clients, not {', '.join(others)}: give the "
                "public of each IdentityKey, or bytes.fromhex of a text"
            )
        if any(len(key) != IDENTITY_BYTES or has_small_order(key) for key in keys):
            raise ConfigurationError(
                f"an Ed25519 public key has {IDENTITY_BYTES} bytes and no small order: else anybody signs for its party"
            )
        if len(set(keys)) != len(keys):
            raise ConfigurationError(
                "two parties have one identity key, so one of them plays both; give each client and helper, and the "
                "server, its own"
            )

    def _own_parameters(self) -> tuple[bytes, ...]:
        """Return the encodings of the parameters that a mode adds to the digest."""
        return ()


def max_colluding_clients(min_survivors: int) -> int:
    """Return the largest number of colluding clients for which a total still hides every other client's vector.

    Colluders can subtract their own vectors from the total, and a malicious server can choose survivors that include
    all of them. At least two other clients must remain: min_survivors - 2.
    """
    return max(0, min_survivors - 2)


def of_two_clients(min_survivors: int) -> list[str]:
    """Return what ``explain`` says where a total may be of two clients; nothing where it has more."""
    if min_survivors > 2:
        return []
    return ["  of a total of two clients each can compute the other's vector: it subtracts its own; ask at least 3"]


def two_thirds(clients: tuple[PartyId, ...]) -> int:
    """Return two thirds of a cohort, rounded down, plus one: the default threshold."""
    return 2 * len(clients) // 3 + 1


def check_min_survivors(min_survivors: int, clients: tuple[PartyId, ...]) -> None:
    """Refuse a minimum of survivors with which a total could be one client's vector or could never be released.

    Raises:
        ConfigurationError: ``min_survivors`` is not 2 to the size of the cohort.
    """
    if len(clients) < 2:
        raise ConfigurationError(
            f"a sum needs at least 2 clients, not {len(clients)}: the sum of one client is its vector"
        )
    if not 2 <= min_survivors <= len(clients):
        raise ConfigurationError(
            f"min_survivors must be 2 to the cohort's {len(clients)}, not {min_survivors}: "
            "the sum of one client is its vector"
        )
