"""One party of a masked sum in a process of its own; see ``killable_party.py``."""

from __future__ import annotations

import os

import numpy as np
from killable_party import KEY, main

from secagg import InsecureSeededEntropy, Layout, MaskedSum
from secagg.durable import DurableClient, FileStore
from secagg.primitives.identity import IdentityKey
from secagg.sums import PartySecrets

CLIENTS = (1, 2, 3, 4, 5)
SERVER_KEY = IdentityKey(b"S" * 32)
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
CONFIG = MaskedSum(
    layout=Layout.of([("counts", 20, 10**6)]),
    clients=CLIENTS,
    session_id=b"restarted session",
    threshold=4,
    identities=tuple(IDENTITIES[party].public for party in CLIENTS),
    server_identity=SERVER_KEY.public,
)
SERVER_SECRETS = PartySecrets(identity=SERVER_KEY)


def vector(party: int) -> np.ndarray:
    return np.arange(CONFIG.layout.size, dtype=np.int64) * party


def durable(party: int, store: FileStore) -> DurableClient:
    entropy = InsecureSeededEntropy(int.from_bytes(os.urandom(8), "big"))  # another stream after every restart
    own = PartySecrets(identity=IDENTITIES[party])
    return DurableClient(store, KEY, CONFIG.client(party, vector(party), entropy=entropy, secrets=own))


if __name__ == "__main__":
    main(CONFIG, durable, SERVER_SECRETS)
