"""A verifier of in-toto statements in DSSE envelopes, written from the two specifications, with nothing of ours."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def statement_of(envelope: str, public_key: bytes) -> dict[str, Any]:
    """The statement of an envelope that the key signed.

    DSSE, protocol.md: PAE(type, body) = "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body, lengths in ASCII decimal.
    """
    found = json.loads(envelope)
    body, kind = base64.standard_b64decode(found["payload"]), found["payloadType"]
    pae = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind.encode(), str(len(body)).encode(), body])
    for one in found["signatures"]:
        Ed25519PublicKey.from_public_bytes(public_key).verify(base64.standard_b64decode(one["sig"]), pae)
    assert found["signatures"]
    assert kind == "application/vnd.in-toto+json"
    statement: dict[str, Any] = json.loads(body)
    assert statement.keys() == {"_type", "subject", "predicateType", "predicate"}
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert all(one["digest"] for one in statement["subject"])
    return statement
