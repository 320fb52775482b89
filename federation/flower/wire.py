"""Flower records: how an invitation, a request and an answer travel."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from federation.site.errors import WireError
from federation.site.invitation import Invitation
from federation.site.site import Messages

CONTEXT, INVITE, STEP, END = "query.context", "query.invite", "query.step", "query.end"
"""The messages of this app."""

HEAVY_BYTES = 1 << 20
"""From here on bytes travel as an array, which Flower sends in pieces and copies less often."""

_FIELDS, _LIGHT, _HEAVY, _ASKED, _MODEL = "fields", "light", "heavy", "asked", "model"


def write_invitation(invitation: Invitation, requests: Messages | None = None) -> RecordDict:
    """The record of an invitation, and of what the server asks of parties that were set up for this sum before."""
    record = _write({"terms": invitation.terms, "context": invitation.signed_context}, {_MODEL: invitation.model})
    record[_ASKED] = ConfigRecord({str(party): message for party, message in (requests or {}).items()})
    return record


def read_invitation(record: RecordDict) -> Invitation:
    """The invitation of a record.

    Raises:
        WireError: the record is none.
    """
    fields, parts = _read(record)
    if parts.keys() != {_MODEL}:
        raise WireError(f"an invitation brings one model as {_MODEL}; both sides need the same version")
    return Invitation(terms=_field(fields, "terms"), signed_context=_field(fields, "context"), model=parts[_MODEL])


def read_requests(record: RecordDict) -> dict[int, bytes]:
    """What an invitation's record asks of parties.

    Raises:
        WireError: the record holds no such thing.
    """
    asked = record.get(_ASKED)
    if not isinstance(asked, ConfigRecord):
        raise WireError("an invitation needs a record of what is asked; both sides need the same version")
    return {_party(str(name)): _light(message) for name, message in asked.items()}


def write_messages(messages: Messages, *, session: bytes) -> RecordDict:
    """The record of what some parties are told, or say, in a session."""
    return _write({"session": session}, {str(party): message for party, message in messages.items()})


def read_messages(record: RecordDict) -> tuple[bytes, dict[int, bytes]]:
    """The session and the messages by party.

    Raises:
        WireError: the record holds no such thing.
    """
    fields, parts = _read(record)
    return _field(fields, "session"), {_party(name): message for name, message in parts.items()}


def _party(name: str) -> int:
    # The pattern first: int() of thousands of digits raises an error of its own.
    if not re.fullmatch("[1-9][0-9]{0,9}", name) or int(name) >= 1 << 32:
        raise WireError("a party is a number of 1 to 2^32 - 1")
    return int(name)


def _write(fields: Mapping[str, bytes], parts: Mapping[str, bytes]) -> RecordDict:
    heavy = {name: content for name, content in parts.items() if len(content) >= HEAVY_BYTES}
    arrays = {name: Array(np.frombuffer(content, np.uint8)) for name, content in heavy.items()}
    return RecordDict(
        {
            _FIELDS: ConfigRecord(dict(fields)),
            _LIGHT: ConfigRecord({name: content for name, content in parts.items() if name not in heavy}),
            _HEAVY: ArrayRecord(arrays),
        }
    )


def _read(record: RecordDict) -> tuple[Mapping[str, object], dict[str, bytes]]:
    try:
        fields, light, heavy = record[_FIELDS], record[_LIGHT], record[_HEAVY]
        if not (
            isinstance(fields, ConfigRecord) and isinstance(light, ConfigRecord) and isinstance(heavy, ArrayRecord)
        ):
            raise WireError("the records of this message are not of this app's kinds")
        parts = {str(name): _light(content) for name, content in light.items()}
        # One at a time, and each array is let go once it is bytes: an upload may take a tenth of a gigabyte.
        for name in list(heavy):
            parts[str(name)] = _bytes_of(heavy.pop(name))
    except KeyError as error:
        raise WireError("a record of this message is missing; both sides need the same version") from error
    return dict(fields), parts


def _light(content: object) -> bytes:
    if not isinstance(content, bytes):
        raise WireError("the parts of a message are bytes")
    return content


def _bytes_of(array: Array) -> bytes:
    try:
        content = array.numpy()
    except Exception as error:  # whatever a forged array makes numpy raise
        raise WireError("an array of this message does not read") from error
    if content.dtype != np.uint8 or content.ndim != 1:
        raise WireError("an array of this message does not hold bytes")
    return content.tobytes()


def _field(fields: Mapping[str, object], name: str) -> bytes:
    value = fields.get(name)
    if not isinstance(value, bytes):
        raise WireError(f"this message needs the field {name} as bytes; both sides need the same version")
    return value
