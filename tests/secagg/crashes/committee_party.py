"""One party of a committee sum in a process of its own; see ``killable_party.py``."""

from __future__ import annotations

import numpy as np
from killable_party import KEY, main

from secagg import CommitteeSum, Layout
from secagg.durable import DurableClient, FileStore
from secagg.primitives.agreement import KeyPair
from secagg.sums import PartySecrets

CLIENTS = (1, 2, 3)
HELPERS = {11: KeyPair(b"a" * 32), 12: KeyPair(b"b" * 32)}
CONFIG = CommitteeSum(
    layout=Layout.of([("counts", 20, 10**6)]),
    clients=CLIENTS,
    session_id=b"restarted session",
    helper_keys=tuple((party, pair.public) for party, pair in HELPERS.items()),
    min_survivors=2,
)


def vector(party: int) -> np.ndarray:
    return np.arange(CONFIG.layout.size, dtype=np.int64) * party


def durable(party: int, store: FileStore) -> DurableClient:
    if party in HELPERS:
        return DurableClient(store, KEY, CONFIG.helper(party, secrets=PartySecrets(agreement=HELPERS[party])))
    return DurableClient(store, KEY, CONFIG.client(party, vector(party)))


if __name__ == "__main__":
    main(CONFIG, durable)
