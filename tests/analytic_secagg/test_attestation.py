"""A signed statement verifies with any DSSE library, and no other bytes are one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from hypothesis import given
from hypothesis import strategies as st
from support.dsse import statement_of

from analytic.array_file import line_of_json
from analytic_secagg.attestation import AttestationError, Statement, pae, read_signed, sign, verify
from secagg import IdentityKey
from secagg.primitives.identity import is_signed, statement

IDENTITY, STRANGER = IdentityKey.generate(), IdentityKey.generate()
CLAIM = Statement(
    subjects={"model": "0" * 64, "b": "1" * 64}, predicate_type="urn:example:claim", predicate={"rows": 9, "ä": [1.5]}
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)


@given(st.dictionaries(st.text(), DIGESTS, min_size=1, max_size=4), st.text(), st.dictionaries(st.text(), VALUES))
def test_what_was_signed_is_what_is_read(subjects: dict[str, str], kind: str, predicate: dict[str, Any]) -> None:
    stated = Statement(subjects=subjects, predicate_type=kind, predicate=predicate)
    envelope = sign(stated, IDENTITY)
    assert verify(envelope, IDENTITY.public).to_bytes() == stated.to_bytes()
    assert read_signed(envelope) == (verify(envelope, IDENTITY.public), IDENTITY.public)
    assert statement_of(envelope, IDENTITY.public) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": kind,
        "predicate": predicate,
    }


def test_a_standard_library_verifies_it() -> None:
    dsse = pytest.importorskip("securesystemslib.dsse", reason="needs pip install securesystemslib")
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey

    def key(identity: IdentityKey) -> SSlibKey:
        public = identity.public.hex()
        return SSlibKey(keyid=public, keytype="ed25519", scheme="ed25519", keyval={"public": public})

    envelope = dsse.Envelope.from_dict(json.loads(sign(CLAIM, IDENTITY)))
    assert envelope.verify([key(IDENTITY)], 1).keys() == {IDENTITY.public.hex()}
    with pytest.raises(VerificationError):
        envelope.verify([key(STRANGER)], 1)
    envelope.payload += b" "
    with pytest.raises(VerificationError):
        envelope.verify([key(IDENTITY)], 1)


def test_the_encoding_is_the_specifications() -> None:
    """The example of DSSE's protocol.md."""
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_no_changed_bit_and_no_other_way_of_writing_is_accepted() -> None:
    envelope = sign(CLAIM, IDENTITY)
    said = json.loads(envelope)
    others = [f"{envelope} ", envelope[:-1], json.dumps(said), "", "[]", "{}", "[" * 100_000, "1", "null"]
    for place, character in enumerate(envelope):
        others += [envelope[:place] + chr(ord(character) ^ bit) + envelope[place + 1 :] for bit in (1, 2, 4, 8, 16, 32)]
    (one,) = said["signatures"]
    for signatures in ([], [one, one], [{**one, "keyid": STRANGER.public.hex()}], [{**one, "keyid": ""}], [1], None):
        others.append(line_of_json({**said, "signatures": signatures}) + "\n")
    others.append(line_of_json({**said, "payloadType": "text/plain"}) + "\n")
    others.append(line_of_json({**said, "more": 1}) + "\n")
    for other in others:
        with pytest.raises(AttestationError):
            verify(other, IDENTITY.public)
        with pytest.raises(AttestationError):
            read_signed(other)
    with pytest.raises(
        AttestationError, match=f"the key {STRANGER.public.hex()} must have signed it, and {IDENTITY.public.hex()} did"
    ):
        verify(envelope, STRANGER.public)
    with pytest.raises(InvalidSignature):
        statement_of(envelope, STRANGER.public)


def signed_payload(payload: bytes) -> str:
    """An envelope of any bytes, as a signer can make it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    kind = "application/vnd.in-toto+json"
    signature = Ed25519PrivateKey.from_private_bytes(IDENTITY.secret).sign(pae(kind, payload))
    sig, body = (base64.b64encode(part).decode() for part in (signature, payload))
    signatures = [{"keyid": IDENTITY.public.hex(), "sig": sig}]
    return line_of_json({"payload": body, "payloadType": kind, "signatures": signatures}) + "\n"


STATED = json.loads(CLAIM.to_bytes())
TWICE = CLAIM.to_bytes().replace(b'"rows":9', b'"rows":8,"rows":9')


@pytest.mark.parametrize(
    "payload",
    [
        TWICE,
        json.dumps(STATED).encode(),
        line_of_json({**STATED, "_type": "https://in-toto.io/Statement/v0.1"}).encode(),
        line_of_json({**STATED, "subject": []}).encode(),
        line_of_json({**STATED, "subject": [{"name": "model", "digest": {"sha256": "0" * 63}}]}).encode(),
        line_of_json({**STATED, "subject": [{"name": "model", "digest": {"sha1": "0" * 40}}]}).encode(),
        line_of_json({**STATED, "subject": [*STATED["subject"], STATED["subject"][0]]}).encode(),
        line_of_json({**STATED, "predicate": [1]}).encode(),
        line_of_json({**STATED, "more": 1}).encode(),
        b"\xff",
        b"[]",
    ],
)
def test_a_signed_payload_that_two_readers_could_read_as_two_statements_is_refused(payload: bytes) -> None:
    assert verify(signed_payload(CLAIM.to_bytes()), IDENTITY.public) == CLAIM
    with pytest.raises(AttestationError, match="an in-toto Statement of version 1 is needed"):
        verify(signed_payload(payload), IDENTITY.public)


@pytest.mark.parametrize("subjects", [{}, {"model": ""}, {"model": "0" * 63 + "G"}, {"model": "A" * 64}])
def test_a_statement_without_digests_is_none(subjects: dict[str, str]) -> None:
    with pytest.raises(AttestationError, match="needs one subject or more, each with a SHA-256"):
        Statement(subjects=subjects, predicate_type="urn:example:claim", predicate={})


def test_a_key_of_small_order_signs_nothing() -> None:
    """Anybody can compute a signature under it that RFC 8032 verifies."""
    zero = bytes([1]) + bytes(31)
    forged = json.loads(sign(CLAIM, IDENTITY))
    sig = base64.b64encode(zero + bytes(32)).decode()
    envelope = line_of_json({**forged, "signatures": [{"keyid": zero.hex(), "sig": sig}]}) + "\n"
    for attempt in (lambda: verify(envelope, zero), lambda: read_signed(envelope)):
        with pytest.raises(AttestationError, match="it was changed after it was signed, or"):
            attempt()


def test_no_signature_of_a_session_is_one_of_a_statement() -> None:
    """Both are made with one key: what one kind signs begins with a length, the other with DSSEv1."""
    payload = CLAIM.to_bytes()
    encoded = pae("application/vnd.in-toto+json", payload)
    assert not statement("DSSEv1", payload).startswith(b"DSSEv1")
    sig = base64.b64decode(json.loads(sign(CLAIM, IDENTITY))["signatures"][0]["sig"])
    assert not is_signed(IDENTITY.public, sig, "DSSEv1", payload)
    assert not is_signed(IDENTITY.public, sig, "", encoded)
