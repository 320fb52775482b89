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
        while len(self._buffer) < n_bytes:
            self._buffer += hashlib.sha256(self._prefix + self._counter.to_bytes(8, "big")).digest()
            self._counter += 1
        drawn, self._buffer = self._buffer[:n_bytes], self._buffer[n_bytes:]
        return drawn
