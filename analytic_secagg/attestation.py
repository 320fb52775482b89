"""Signed statements about files: in-toto Statements (version 1) in DSSE envelopes (version 1), signed with Ed25519.

An envelope is one line of JSON: the statement in base64, its media type, and one signature over PAE(type, statement).
``keyid`` is the signer's public key in hexadecimal digits. Any DSSE library verifies such an envelope with that key.
Sources: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and
https://github.com/secure-systems-lab/dsse (envelope.md, protocol.md).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from analytic.array_file import line_of_json
from analytic_secagg.errors import FederationError
from secagg import IdentityKey
from secagg.primitives.identity import verifies

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


class AttestationError(FederationError, ValueError):
    """These bytes are no signed statement, or the key did not sign them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """An in-toto Statement: what somebody claims about files that are named by their digests.

    Args:
        subjects: SHA-256 of each file, in 64 hexadecimal digits, by the file's name; at least one.
        predicate_type: URI that says what kind of claim it is.
        predicate: the claim, of what JSON can hold.

    Raises:
        AttestationError: no subject, or a digest that is no SHA-256.

    >>> identity = IdentityKey.generate()
    >>> statement = Statement(subjects={"model": "0" * 64}, predicate_type="urn:example:claim", predicate={"rows": 9})
    >>> envelope = sign(statement, identity)
    >>> verify(envelope, identity.public) == statement
    True
    """

    subjects: Mapping[str, str]
    predicate_type: str
    predicate: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        wrong = [name for name, digest in self.subjects.items() if not re.fullmatch("[0-9a-f]{64}", digest)]
        if wrong or not self.subjects:
            raise AttestationError(
                "a statement needs one subject or more, each with a SHA-256 of 64 hexadecimal digits; not so: "
                f"{', '.join(wrong) or 'there is none'}"
            )

    def to_bytes(self) -> bytes:
        """Return the JSON that is signed: names sorted, no spaces."""
        subjects = [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(self.subjects.items())]
        statement = {
            "_type": STATEMENT_TYPE,
            "subject": subjects,
            "predicateType": self.predicate_type,
            "predicate": dict(self.predicate),
        }
        return line_of_json(statement).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Statement:
        """Return the statement; inverse of ``to_bytes``.

        Raises:
            AttestationError: it is no statement as ``to_bytes`` writes it: two readers must not see two statements.
        """
        try:
            found = json.loads(content)
            subjects = {one["name"]: one["digest"]["sha256"] for one in found["subject"]}
            statement = cls(
                subjects=subjects, predicate_type=found["predicateType"], predicate=dict(found["predicate"])
            )
            if statement.to_bytes() == content:
                return statement
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise AttestationError(f"an in-toto Statement of version 1 is needed ({type(error).__name__})") from error
        raise AttestationError("an in-toto Statement of version 1 is needed, with sorted names and without spaces")


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding, the bytes that are signed.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(statement: Statement, identity: IdentityKey) -> str:
    """Return the envelope of a statement, one line of JSON with a line break.

    Other signatures of the same key begin with a length of eight bytes (``secagg.primitives.identity.statement``) and
    never with ``DSSEv1``, so that none of them is a signature of a statement, or the reverse.
    """
    payload = statement.to_bytes()
    signature = Ed25519PrivateKey.from_private_bytes(identity.secret).sign(pae(PAYLOAD_TYPE, payload))
    return _envelope(payload, identity.public, signature)


def verify(envelope: str, public_key: bytes) -> Statement:
    """Return the statement of an envelope that this key signed.

    Args:
        envelope: the text, as ``sign`` wrote it; the same content written in another way is refused.
        public_key: 32 bytes, from elsewhere than the envelope.

    Raises:
        AttestationError: it is no such envelope, was changed, or another key signed it.
    """
    statement, key = read_signed(envelope)
    if key != public_key:
        raise AttestationError(f"the key {public_key.hex()} must have signed it, and {key.hex()} did")
    return statement


def read_signed(envelope: str) -> tuple[Statement, bytes]:
    """Return the statement of an envelope and the public key that signed it; the caller must know whose key it is.

    Raises:
        AttestationError: it is no such envelope, or was changed after it was signed.
    """
    payload, keyid, signature = _parts(envelope)
    if not verifies(keyid, signature, pae(PAYLOAD_TYPE, payload)):
        raise AttestationError(f"it was changed after it was signed, or {keyid.hex()} is not the key that signed it")
    return Statement.from_bytes(payload), keyid


def _parts(envelope: str) -> tuple[bytes, bytes, bytes]:
    """Return payload, key and signature of an envelope."""
    try:
        found = json.loads(envelope)
        (one,) = found["signatures"]
        payload, signature = (base64.b64decode(text, validate=True) for text in (found["payload"], one["sig"]))
        keyid = bytes.fromhex(one["keyid"])
        if _envelope(payload, keyid, signature) == envelope:
            return payload, keyid, signature
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AttestationError(f"a DSSE envelope with one signature is needed ({type(error).__name__})") from error
    raise AttestationError("a DSSE envelope is needed as this product writes it: one line, names sorted, no spaces")


def _envelope(payload: bytes, keyid: bytes, signature: bytes) -> str:
    encoded, signed = (base64.b64encode(one).decode() for one in (payload, signature))
    envelope = {
        "payload": encoded, "payloadType": PAYLOAD_TYPE, "signatures": [{"keyid": keyid.hex(), "sig": signed}]
    }  # fmt: skip
    return line_of_json(envelope) + "\n"
