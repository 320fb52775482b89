"""What a party says to the server, signed where nothing else ties it to its number: ``signers`` says where.

Without this the first node that claims a number would speak for it: it could leave a victim's vector out, or answer
for the key holder with a total of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from federation.modes import KeyKind, Mode
from federation.site.errors import WireError
from federation.sum_setup import SumSetup
from secagg import PartyId
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey, is_signed

_LABEL = "flower message"


def signers(mode: Mode, setup: SumSetup) -> Mapping[PartyId, bytes]:
    """Return who signs what it says to the server, with its public key.

    These are the parties that have a signing key and that nothing in the sum ties to their number. A committee's
    helpers have no such key.
    """
    clients = {} if mode.authenticates_clients else dict(setup.client_keys)
    helpers = setup.helper_keys if mode.helper is not None and mode.helper.key is KeyKind.IDENTITY else {}
    return {**clients, **helpers}


def sign_message(identity: IdentityKey, session: bytes, party: PartyId, message: bytes) -> bytes:
    """A 64-byte Ed25519 signature, then the message; the same bytes each time, so that a message may be repeated."""
    return identity.sign(_LABEL, *_statement(session, party, message)) + message


def open_message(public: bytes, session: bytes, party: PartyId, signed: bytes) -> bytes:
    """The message that a party signed for one session.

    Raises:
        WireError: no signature of this party over it and this session.
    """
    signature, message = signed[:SIGNATURE_BYTES], signed[SIGNATURE_BYTES:]
    if not is_signed(public, signature, _LABEL, *_statement(session, party, message)):
        raise WireError(
            f"party {party} must sign what it says, and this is signed by somebody else, for another session or not at "
            "all; compare the rosters' fingerprints"
        )
    return message


def _statement(session: bytes, party: PartyId, message: bytes) -> tuple[bytes, ...]:
    return session, party.to_bytes(4, "big"), hashlib.sha256(message).digest()
