"""The public parameters of a sum that is masked, then encrypted; checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from secagg.he.authenticity import check_signature, fingerprint
from secagg.he.carrier import EncryptedCarrier
from secagg.he.choice import Candidate
from secagg.he.config import check_key_holder, describe_origin, encryption_parts
from secagg.he.contexts import load_public
from secagg.he.parameters import EncryptionParameters
from secagg.masked.explain import explain
from secagg.masked.protocol import MaskedSum
from secagg.sessions import PartyId


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedEncryptedParameters(MaskedSum):
    """A masked sum's parameters, and under which key the masked words travel.

    Args:
        parameters: scheme, ring and moduli: ``choose_parameters(..., masked=True)``.
        public_context: the key holder's public TenSEAL context, of a key pair made for this session.
        key_holder: the key holder's number, none of the clients'.
        holder_identity: the key holder's Ed25519 public key from the operator. With it, a context that the key holder
            did not sign for this session is refused.
        context_signature: what ``sign_context`` gave; goes with ``holder_identity``.
    """

    parameters: EncryptionParameters
    public_context: bytes = field(repr=False)
    key_holder: PartyId
    holder_identity: bytes = b""
    context_signature: bytes = field(default=b"", repr=False)

    @property
    def name(self) -> str:
        """The mode's name."""
        return f"masked+{self.parameters.scheme}"

    @property
    def carrier(self) -> EncryptedCarrier:
        """How this session's masked words travel."""
        return EncryptedCarrier(
            layout=self.layout, parameters=self.parameters, n_clients=len(self.clients), masked=True
        )

    @property
    def vector_bytes(self) -> int:
        """Bytes of a client's vector as it travels."""
        return self.carrier.upload_bytes

    def explain(self) -> str:
        """What masks and encryption guarantee and cost, in words and numbers."""
        return "\n".join(
            [
                explain(self),
                f"  over it {Candidate(parameters=self.parameters, plan=self.carrier.plan).explain()}",
                f"  the key holder, party {self.key_holder}, sees a masked sum alone and the server no masked vector; "
                "both together see what the server of a masked sum sees",
                f"  public context {fingerprint(self.public_context).hex()[:16]}..., "
                + describe_origin(self.holder_identity),
            ]
        )

    def _check(self) -> None:
        MaskedSum._check(self)
        check_key_holder(self.key_holder, self.clients)
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

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            *MaskedSum._own_parameters(self),
            *encryption_parts(self.parameters, self.public_context, self.key_holder),
            self.holder_identity,
        )
