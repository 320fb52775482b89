"""One party of a sum in a process of its own, `party.py MODE/PARTY STORE`; see ``killable_party.py``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from killable_party import KEY, KillingStore, be_party, be_server

from secagg import CommitteeSum, InOneProcess, InsecureSeededEntropy, Layout, MaskedSum
from secagg.durable import DurableClient
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey
from secagg.sums import PartySecrets

LAYOUT = Layout.of([("counts", 20, 10**6)])
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in (1, 2, 3, 4, 5)}
SERVER_KEY = IdentityKey(b"S" * 32)
HELPERS = {11: BoxKey(b"a" * 32), 12: BoxKey(b"b" * 32)}
SUMS = {
    "masked": InOneProcess(
        protocol=MaskedSum(
            layout=LAYOUT,
            clients=tuple(IDENTITIES),
            session_id=b"restarted session",
            threshold=4,
            identities=tuple(key.public for key in IDENTITIES.values()),
            server_identity=SERVER_KEY.public,
        ),
        secrets={party: PartySecrets(identity=key) for party, key in {0: SERVER_KEY, **IDENTITIES}.items()},
    ),
    "committee": InOneProcess(
        protocol=CommitteeSum(
            layout=LAYOUT,
            clients=(1, 2, 3),
            session_id=b"restarted session",
            helper_keys=tuple((party, pair.public) for party, pair in HELPERS.items()),
            min_survivors=2,
        ),
        secrets={party: PartySecrets(boxes=pair) for party, pair in HELPERS.items()},
    ),
}


def vector(party: int) -> np.ndarray:
    return np.arange(LAYOUT.size, dtype=np.int64) * party


if __name__ == "__main__":
    mode, role = sys.argv[1].split("/")
    parties, store = SUMS[mode], KillingStore(Path(sys.argv[2]))
    if role == "server":
        be_server(parties, store)
    elif int(role) in parties.helpers:
        be_party(DurableClient(store, KEY, parties.helper(int(role))))
    else:
        entropy = InsecureSeededEntropy(int.from_bytes(os.urandom(8), "big"))  # another stream after every restart
        be_party(DurableClient(store, KEY, parties.client(int(role), vector(int(role)), entropy=entropy)))
