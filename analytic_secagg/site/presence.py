"""A helper's word that it is here: it has nothing else to say before it is asked, and only its word gives it its seat.

Without it the first node that claims a helper's number would be asked in its stead, and its answer refused: no total.
"""

from __future__ import annotations

from secagg import PartyId, SumProtocol
from secagg.config import SERVER
from secagg.errors import MalformedMessageError
from secagg.primitives.identity import IdentityKey
from secagg.wire import MessageType, open_frame, seal_frame


def presence_message(protocol: SumProtocol, party: PartyId, identity: IdentityKey | None) -> bytes:
    """Return a helper's word that it takes part in a sum; the same bytes each time."""
    return seal_frame(
        MessageType.PRESENCE, b"", digest=protocol.digest, sender=party, recipient=SERVER, identity=identity
    )


def check_presence(protocol: SumProtocol, party: PartyId, message: bytes) -> None:
    """Refuse what is not a helper's word for this sum.

    Raises:
        MalformedMessageError: another message, of another sum, or not signed by this helper.
    """
    frame = open_frame(
        message, digest=protocol.digest, sender=party, recipient=SERVER, public=protocol.identity_of(party)
    )
    if frame.type is not MessageType.PRESENCE or frame.payload:
        raise MalformedMessageError(
            f"a helper must announce itself before anything else, and sent {frame.type.name}", peer=party
        )
