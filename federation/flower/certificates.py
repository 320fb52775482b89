"""Certificates and node keys for a trial on loopback. On real hosts use your own authority (see the how-to)."""

from __future__ import annotations

import datetime

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

VALID_DAYS = 30


def loopback_certificates() -> tuple[bytes, bytes, bytes]:
    """Return an authority's certificate, a server's for ``localhost`` and 127.0.0.1, and the server's key, as PEM.

    The authority is fresh, and its key is forgotten.
    """
    import trustme  # of the extra flower; keys, rosters and site files are made without it

    ends, authority = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=VALID_DAYS), trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1", common_name="localhost", not_after=ends)
    chain = b"".join(blob.bytes() for blob in server.cert_chain_pems)
    return authority.cert_pem.bytes(), chain, server.private_key_pem.bytes()


def node_key_pair() -> tuple[bytes, bytes]:
    """A SuperNode's key in OpenSSH form, secret and public, as ``ssh-keygen -t ecdsa -b 384`` makes them."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return secret, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
