"""The test vectors of committee sums, which `tests/make_vectors.py` writes.

Boxes are an exception to what it says of messages: no seed makes them, so those of the files stay where all else of an
upload is as it was, and opening them is what is pinned.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from vector_parts import SMALL, Recorded, every_width, lines_of, vectors_for

from secagg import CommitteeSum
from secagg.committee import SealingKey
from secagg.committee.messages import CommitteeInput
from secagg.entropy import InsecureSeededEntropy
from secagg.layout import Layout
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey
from secagg.sums import FINGERPRINT_BYTES, PartySecrets
from secagg.wire import Reader, payload_of, sender_of

VECTORS = Path(__file__).resolve().parent / "committee"
Json = dict[str, Any]
SEED = 5


def fixed(label: str, n_bytes: int) -> bytes:
    return InsecureSeededEntropy(SEED, label)(n_bytes)


def stored(name: str) -> list[bytes]:
    """The uploads of the file that is there."""
    path = VECTORS / f"committee_{name.replace(' ', '_')}.json"
    if not path.exists():
        return []
    messages = json.loads(path.read_text())["messages"]
    return [bytes.fromhex(message["message"]) for message in messages if message["type"] == "COMMITTEE_INPUT"]


def with_stored_boxes(fresh: bytes, uploads: list[bytes], config: CommitteeSum) -> bytes:
    """The stored upload that differs in nothing but its boxes and what is signed over them, else the fresh one."""

    def rest(message: bytes) -> object:
        read = CommitteeInput.read(Reader(memoryview(payload_of(message)), peer=sender_of(message)), config)
        return message[:47], list(read.boxes), read.commitments, read.vector

    same_session = [message for message in uploads if message[:47] == fresh[:47]]
    return next((message for message in same_session if rest(message) == rest(fresh)), fresh)


def scenario(
    name: str,
    about: str,
    clients: tuple[int, ...],
    helpers: tuple[int, ...],
    *,
    layout: Any = SMALL,
    silent: tuple[int, ...] = (),
    min_survivors: int = 2,
    is_authenticated: bool = False,
    corrupt_helpers: int | None = None,
    fails: bool = False,
) -> Json:
    """One sum from its first message to its total, or to its helpers' word that it failed after they opened boxes."""
    keys = {party: IdentityKey(fixed(f"{name} identity {party}", 32)) for party in clients if is_authenticated}
    signer = IdentityKey(fixed(f"{name} server", 32)) if is_authenticated else None
    signing = {party: IdentityKey(fixed(f"{name} identity {party}", 32)) for party in helpers if is_authenticated}
    pairs = {party: BoxKey(fixed(f"{name} helper {party}", 32)) for party in helpers}
    sealed = {party: pair.public for party, pair in pairs.items()}
    for party, own in signing.items():
        sealed[party] = SealingKey.signed(own, sealed[party], epoch=3, until=2**33).to_bytes()
    config = CommitteeSum(
        layout=Layout.of(layout, sum_fits=True),
        clients=clients,
        session_id=fixed(f"{name} session", 16),
        context=fixed(f"{name} context", 32),
        helper_keys=tuple(sealed.items()),
        min_survivors=min_survivors,
        identities=tuple(key.public for key in keys.values()),
        server_identity=signer.public if signer else b"",
        helper_identities=tuple((party, key.public) for party, key in signing.items()),
        corrupt_helpers=corrupt_helpers,
    )
    vectors, entropy = vectors_for(name, layout, clients), {p: Recorded(SEED, f"{name} client {p}") for p in clients}
    server = config.server(secrets=PartySecrets(identity=signer))
    said = []

    def told(party: int) -> bytes:
        return fixed(f"{name} rows {party}", FINGERPRINT_BYTES)

    for party in clients:
        if party in silent:
            continue
        vector = np.array(vectors[party], dtype=np.int64)
        rows = partial(told, party) if is_authenticated else None
        secrets = PartySecrets(identity=keys.get(party), data_fingerprint=rows)
        client = config.client(party, vector, entropy=entropy[party], secrets=secrets)
        message = with_stored_boxes(client.start(), stored(name), config)
        said.append((party, 0, message))
        server.receive(party, message)
    sessions = {
        helper: config.helper(helper, secrets=PartySecrets(boxes=pairs[helper], identity=signing.get(helper)))
        for helper in helpers
    }

    def exchange(requests: Any, hears: Any) -> bool:
        said.extend((0, helper, request) for helper, request in requests.items())
        for helper, request in requests.items():
            if helper not in silent:
                answer = sessions[helper].receive(request)
                assert answer is not None
                said.append((helper, 0, answer))
                hears.receive(helper, answer)
        return bool(requests)

    if fails:
        exchange(server.close_round(), server)
        failure = config.failure(secrets=PartySecrets(identity=signer))
        assert failure is not None
        exchange(failure.requests(), failure)
        ended: Json = {"failure": failure.proof.hex(), "survivors": [], "total": []}
    else:
        while exchange(server.close_round(), server):
            pass
        assert server.result is not None
        ended = {"survivors": list(server.result.survivors), "total": server.result.total.tolist()}
    return {
        "about": about,
        "parameters": {
            "layout": [list(segment) for segment in layout],
            "clients": list(clients),
            "session_id": config.session_id.hex(),
            "context": config.context.hex(),
            "helper_keys": {str(party): key.hex() for party, key in sealed.items()},
            "min_survivors": min_survivors,
            "corrupt_helpers": config.corrupt,
            "identities": [key.public.hex() for key in keys.values()],
            "server_identity": config.server_identity.hex(),
            "helper_identities": {str(party): key.public.hex() for party, key in signing.items()},
        },
        "helper_secrets": {str(party): pair.secret.hex() for party, pair in pairs.items()},
        "identity_secrets": {str(party): key.secret.hex() for party, key in {**keys, **signing}.items()},
        "server_secret": signer.secret.hex() if signer else "",
        "rows": {str(p): told(p).hex() if is_authenticated else "00" * FINGERPRINT_BYTES for p in clients},
        "silent": list(silent),
        "vectors": {str(party): vector for party, vector in vectors.items()},
        "entropy": {str(party): entropy[party].drawn.hex() for party in clients},
        "digest": config.digest.hex(),
        "messages": lines_of(said),
        **ended,
    }


def all_files() -> dict[str, str]:
    """Every vector's text by its name."""
    two = (1, 11)
    vectors = {
        "committee_no_dropouts": scenario("no dropouts", "Everybody speaks; two helpers.", (2, 5, 9), two),
        "committee_dropout": scenario(
            "dropout",
            "A client never speaks; one helper.",
            (2, 5, 9, 2**32 - 1),
            (70_000,),
            silent=(9,),
            min_survivors=3,
        ),
        "committee_signed": scenario(
            "signed",
            "Seeds and messages are signed; a client never speaks; three helpers.",
            (2, 5, 9),
            (1, 6, 11),
            silent=(5,),
            is_authenticated=True,
        ),
        "committee_of_four": scenario(
            "of four",
            "Four helpers, of whom one may be corrupt; one helper and one client are never there.",
            (2, 5, 9),
            (1, 6, 11, 12),
            silent=(5, 6),
            is_authenticated=True,
            corrupt_helpers=1,
        ),
        "committee_failed": scenario(
            "failed",
            "Of four helpers one is never there; the others certify that the sum failed.",
            (2, 5, 9),
            (1, 6, 11, 12),
            silent=(5, 6),
            is_authenticated=True,
            corrupt_helpers=1,
            fails=True,
        ),
        "committee_every_width": scenario(
            "every width",
            "Entries of 1 to 8 bytes, totals at both ends of the bound.",
            (2, 5),
            two,
            layout=every_width("beyond a byte"),
        ),
    }
    return {f"{name}.json": json.dumps(vector, indent=1) + "\n" for name, vector in vectors.items()}
