"""One party of a sum in a process of its own, `party.py MODE/PARTY STORE`, which kills itself on command.

Frames on standard input and output: 4 bytes length, then bytes. An answer of length NONE is none, one of length ERROR
precedes a frame with the error's text. ``tests/secagg/test_restart.py`` is the other end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

from secagg import CommitteeSum, InOneProcess, InsecureSeededEntropy, Layout, MaskedSum, PartySecrets
from secagg.durable import DurableClient, FileStore
from secagg.errors import SecureSumError
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey

NONE, ERROR = 0xFFFFFFFE, 0xFFFFFFFF
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


class KillingStore(FileStore):
    """Dies right before or right after the save of a given number."""

    saves = 0

    def save(self, record: bytes) -> None:
        when, number = os.environ.get("KILL", "never:0").split(":")
        KillingStore.saves += 1
        if when == "before" and KillingStore.saves == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        super().save(record)
        if when == "after" and KillingStore.saves == int(number):
            os.kill(os.getpid(), signal.SIGKILL)


def read_exactly(n_bytes: int) -> bytes:
    data = sys.stdin.buffer.read(n_bytes)
    if len(data) < n_bytes:
        sys.exit(0)
    return data


def write(answer: bytes | None) -> None:
    size = NONE if answer is None else len(answer)
    sys.stdout.buffer.write(size.to_bytes(4, "big") + (answer or b""))
    sys.stdout.buffer.flush()


def be_party(session: DurableClient) -> None:
    """A client or helper: an empty request starts it."""
    while True:
        message = read_exactly(int.from_bytes(read_exactly(4), "big"))
        try:
            write(session.receive(message) if message else session.start())
        except SecureSumError as error:
            sys.stdout.buffer.write(ERROR.to_bytes(4, "big"))
            write(str(error).encode())


if __name__ == "__main__":
    mode, number = sys.argv[1].split("/")
    parties, party = SUMS[mode], int(number)
    if party in parties.helpers:
        session = parties.helper(party)
    else:
        entropy = InsecureSeededEntropy(int.from_bytes(os.urandom(8), "big"))  # another stream after every restart
        session = parties.client(party, vector(party), entropy=entropy)
    be_party(DurableClient(KillingStore(Path(sys.argv[2])), b"k" * 32, session))
