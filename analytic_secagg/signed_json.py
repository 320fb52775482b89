"""A signed document: one line of JSON with sorted names, among them ``signer`` and ``signature``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from analytic.array_file import line_of_json
from secagg import IdentityKey
from secagg.primitives.identity import is_signed


def signed_line(label: str, content: Mapping[str, Any], identity: IdentityKey) -> str:
    """Return a document as one line, signed.

    Args:
        label: what kind of document it is; a signature under one label is none under another.
        content: the document, without ``signer`` and ``signature``.
        identity: the key that signs.
    """
    signature = identity.sign(label, line_of_json(content).encode())
    return line_of_json({**content, "signer": identity.public.hex(), "signature": signature.hex()}) + "\n"


def signer_of(label: str, text: str) -> bytes | None:
    """Return the public key that signed a line; None where nobody did, or a character of it was changed since."""
    try:
        content = json.loads(text)
        signer, signature = bytes.fromhex(content.pop("signer")), bytes.fromhex(content.pop("signature"))
        stated = line_of_json({**content, "signer": signer.hex(), "signature": signature.hex()}) + "\n"
        signed = line_of_json(content).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return signer if text == stated and is_signed(signer, signature, label, signed) else None
