"""Where secret bytes come from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

Entropy = Callable[[int], bytes]
"""A source of secret bytes: ``entropy(n)`` returns ``n`` fresh ones. It feeds keys, masks and shares."""


def os_entropy(n_bytes: int) -> bytes:
    """``n_bytes`` from the operating system's generator. The only source a deployment may use."""
    return os.urandom(n_bytes)


class InsecureSeededEntropy:
    """A reproducible stream for tests, vectors and simulations: SHA-256(seed, label, counter).

    Whoever knows the seed knows every secret drawn from it. Two streams with different labels are independent.
    """

    def __init__(self, seed: int, label: str = "") -> None:
        self._prefix = hashlib.sha256(f"insecure-seeded-entropy/{seed}/{label}".encode()).digest()
        self._counter = 0
        self._buffer = b""

    def __call__(self, n_bytes: int) -> bytes:
        """The stream's next ``n_bytes``."""
        stream = bytearray(self._buffer)
        while len(stream) < n_bytes:
            stream += hashlib.sha256(self._prefix + self._counter.to_bytes(8, "big")).digest()
            self._counter += 1
        self._buffer = bytes(stream[n_bytes:])
        return bytes(stream[:n_bytes])
