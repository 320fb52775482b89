"""The public parameters of an encrypted sum, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from secagg.config import MAX_PARTY, SumConfig, check_min_survivors, harmless_colluders
from secagg.errors import ConfigurationError
from secagg.he.authenticity import check_signature, fingerprint
from secagg.he.carrier import EncryptedCarrier
from secagg.he.choice import Candidate
from secagg.he.contexts import load_public
from secagg.he.parameters import EncryptionParameters, Scheme
from secagg.sessions import PartyId

HOLDER_ROLE = "key holder"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedSumParameters(SumConfig):
    """Under which key and parameters, and who decrypts.

    Args:
        parameters: scheme, ring and moduli, see ``choose_parameters``.
        public_context: the key holder's public TenSEAL context, of a key pair made for this session. A client gets it
            from the operator, or checks it: ``pin_context``, or the next two.
        key_holder: the key holder's number, none of the clients'.
        min_survivors: fewest clients of a sum that the key holder decrypts; at least 2.
        holder_identity: the key holder's Ed25519 public key from the operator. With it, a context that the key holder
            did not sign for this session is refused.
        context_signature: what ``sign_context`` gave; goes with ``holder_identity``.
    """

    parameters: EncryptionParameters
    public_context: bytes = field(repr=False)
    key_holder: PartyId
    min_survivors: int
    holder_identity: bytes = b""
    context_signature: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        # Before the digest, which needs numbers that fit their bytes.
        check_key_holder(self.key_holder, self.clients)
        check_min_survivors(self.min_survivors, self.clients)
        SumConfig.__post_init__(self)
        _ = self.carrier
        # Before TenSEAL's parser sees a byte of it: a context may have come by way of the server.
        check_signature(
            self.holder_identity,
            self.context_signature,
            self.public_context,
            parameters=self.parameters,
            session_id=self.session_id,
            key_holder=self.key_holder,
        )
        load_public(self.parameters, self.public_context)

    @property
    def name(self) -> str:
        """The mode's name."""
        return self.parameters.scheme

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        return self.min_survivors

    @property
    def carrier(self) -> EncryptedCarrier:
        """How this session's vectors travel."""
        return EncryptedCarrier(layout=self.layout, parameters=self.parameters, n_clients=len(self.clients))

    def explain(self) -> str:
        """Whom it needs to trust; then the choice: parameters, limbs, margin, failure probability, bytes, carries."""
        return "\n".join(
            [
                Candidate(parameters=self.parameters, plan=self.carrier.plan).explain(),
                "  SEMI-HONEST: the server may look on but not lie; one that lies has the key holder decrypt a single "
                f"client's vector (masked+{self.name} prevents it). Server and key holder must not collude",
                f"  and private while at most {harmless_colluders(self.survivors_needed)} of the {len(self.clients)} "
                "clients collude with the server: they take their own vectors off a total",
                f"  public context {fingerprint(self.public_context).hex()[:16]}..., "
                + describe_origin(self.holder_identity),
            ]
        )

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            *encryption_parts(self.parameters, self.public_context, self.key_holder),
            self.min_survivors.to_bytes(4, "big"),
            *([self.holder_identity] if self.holder_identity else []),
        )


def check_key_holder(key_holder: PartyId, clients: tuple[PartyId, ...]) -> None:
    """Refuse a number that is a client's, the server's or none.

    Raises:
        ConfigurationError: says what it must be.
    """
    if not 1 <= key_holder <= MAX_PARTY or key_holder in clients:
        raise ConfigurationError(
            f"the key holder needs a number of 1 to {MAX_PARTY} that is no client's, not {key_holder}"
        )


def encryption_parts(
    parameters: EncryptionParameters, public_context: bytes, key_holder: PartyId
) -> tuple[bytes, bytes, bytes]:
    """What a configuration digest takes of the encryption."""
    return parameters.canonical(), fingerprint(public_context), key_holder.to_bytes(4, "big")


def describe_origin(holder_identity: bytes) -> str:
    """How a client knows the public context, for people."""
    if holder_identity:
        return f"signed for this session by the key holder's identity {holder_identity.hex()[:16]}..."
    return "not signed: compare its fingerprint with the operator's (pin_context)"


def check_scheme(needed: Scheme, parameters: EncryptionParameters, mode: str) -> None:
    """Refuse parameters of the other scheme.

    Raises:
        ConfigurationError: says which are needed.
    """
    if parameters.scheme != needed:
        raise ConfigurationError(f"{mode} needs {needed} parameters, not {parameters.scheme}")


def first_free_number(clients: tuple[PartyId, ...]) -> PartyId:
    """The first number that no client has."""
    taken = frozenset(clients)
    return next(party for party in count(1) if party not in taken)
