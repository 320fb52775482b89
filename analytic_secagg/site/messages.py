"""Messages between server and sites, as bytes that any engine may carry: a proposal, requests, answers.

Every message of the server travels in an envelope that its identity signed (``signed``, ``opened``): before a sum has
begun nothing else tells a site that a proposal, or the end of a session, is the roster's server's.
"""

from __future__ import annotations

from analytic_secagg.site.errors import WireError
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.results import RunResults
from analytic_secagg.site.site import Messages
from secagg import IdentityKey
from secagg.encoding import length_prefixed, split_parts
from secagg.primitives.identity import is_signed

CONTEXT, INVITE, STEP, END = KINDS = ("context", "invite", "step", "end")
"""The kinds of a server's messages: for the key holder's context, to a sum, in it, and when it is over."""

_PROPOSAL, _MESSAGES = b"analytic-secagg/3 invitation", b"analytic-secagg/2 messages"
_END = b"analytic-secagg/3 end"
_SIGNED, _LABEL = b"analytic-secagg/1 signed", "message of the server"
_PARTY_BYTES = 4


def signed(identity: IdentityKey, kind: str, content: bytes) -> bytes:
    """Return a message of this kind in an envelope that the server signed."""
    return length_prefixed(_SIGNED, identity.sign(_LABEL, kind.encode(), content), content)


def opened(server: bytes, kind: str, content: bytes) -> bytes:
    """Return what is in an envelope of this kind, if the roster's server signed it; nothing in it is read before.

    Raises:
        WireError: it is none, or somebody else made or changed it, or took it for one of another kind.
    """
    parts = _parts(_SIGNED, 3, content)
    if len(parts) != 3 or not is_signed(server, parts[1], _LABEL, kind.encode(), parts[2]):
        raise WireError(
            f"this message of the kind {kind!r} is not signed by the roster's server; nothing of it is read"
        )
    return parts[2]


def write_proposal(proposal: TrainingProposal, requests: Messages | None = None) -> bytes:
    """Return the bytes of a proposal, and of what is asked of parties that were set up for this sum before."""
    return length_prefixed(_PROPOSAL, proposal.to_bytes(), *_write(requests or {}))


def read_proposal(content: bytes) -> tuple[TrainingProposal, dict[int, bytes]]:
    """Return the proposal, and what is asked of parties with it.

    Raises:
        WireError: these bytes are none.
    """
    parts = _parts(_PROPOSAL, 2, content)
    return TrainingProposal.from_bytes(parts[1]), _read(parts[2:])


def write_messages(messages: Messages, *, session: bytes) -> bytes:
    """Return the bytes of what some parties are told, or say, in a session."""
    return length_prefixed(_MESSAGES, session, *_write(messages))


def read_messages(content: bytes) -> tuple[bytes, dict[int, bytes]]:
    """Return the session and the messages by party.

    Raises:
        WireError: these bytes are no such thing.
    """
    parts = _parts(_MESSAGES, 2, content)
    return parts[1], _read(parts[2:])


def write_end(session: bytes, results: RunResults | None = None, failure: bytes = b"") -> bytes:
    """Return the bytes of a run's end, with what it ended in: results, or what proves that its last sum failed."""
    parts = [] if results is None else [results.model, results.totals, results.signature]
    return length_prefixed(_END, session, failure, *parts)


def read_end(content: bytes) -> tuple[bytes, RunResults | None, bytes]:
    """Return the session that is over, the results, and the proof that its sum failed; neither need be there.

    Raises:
        WireError: these bytes are no such thing.
    """
    _, session, failure, *parts = _parts(_END, 3, content)
    if not parts:
        return session, None, failure
    if len(parts) != 3:
        raise WireError("a run ends in a model, totals and a signature, or in nothing")
    return session, RunResults(model=parts[0], totals=parts[1], signature=parts[2]), failure


def _write(messages: Messages) -> list[bytes]:
    """Each party's number, then its message."""
    return [part for party, said in messages.items() for part in (party.to_bytes(_PARTY_BYTES, "big"), said)]


def _read(parts: list[bytes]) -> dict[int, bytes]:
    parties = [int.from_bytes(part, "big") for part in parts[::2] if len(part) == _PARTY_BYTES]
    if len(parts) != 2 * len(parties) or len(set(parties)) != len(parties) or 0 in parties:
        raise WireError("a party is a number of 1 to 2^32 - 1 and is listed once")
    return dict(zip(parties, parts[1::2], strict=True))


def _parts(label: bytes, n_least: int, content: bytes) -> list[bytes]:
    try:
        parts = split_parts(content)
    except ValueError:
        parts = []
    if len(parts) < n_least or parts[0] != label:
        raise WireError(f"this message must be {label.decode()} and is not; both sides need the same version")
    return parts
