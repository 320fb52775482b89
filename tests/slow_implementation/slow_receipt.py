"""The receipt of a finished sum: section 15 of docs/reference/wire-format.md."""

from __future__ import annotations

from slow_bytes import number, sha256, statement, write_parties
from slow_curves import ed25519_sign
from slow_server import SlowServer


def receipt(server: SlowServer, identity: bytes) -> bytes:
    assert server.total is not None
    hashes = (
        server.session.digest,
        sha256(server.transcript),
        sha256(b"".join((value % 2**64).to_bytes(8, "little") for value in server.total)),
    )
    survivors = write_parties(server.survivors)
    signature = ed25519_sign(identity, statement("receipt", hashes[0], survivors, hashes[1], hashes[2]))
    return b"SAGR" + number(1, 1) + b"".join(hashes) + signature + survivors
