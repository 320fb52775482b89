"""Sources of secret random bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

Entropy = Callable[[int], bytes]
"""A source of secret bytes: ``entropy(n)`` returns ``n`` fresh bytes, for keys, masks, shares and noise."""


def os_entropy(n_bytes: int) -> bytes:
    """Return ``n_bytes`` from the operating system's generator: the only source for deployments.

    >>> len(os_entropy(32))
    32
    """
    return os.urandom(n_bytes)


class InsecureSeededEntropy:
    """A reproducible byte stream for tests and simulations: SHA-256(seed, label, counter). Not for deployments.

    The seed determines every secret that is drawn from the stream.

    Args:
        seed: any integer.
        label: streams with different labels are independent.

    >>> InsecureSeededEntropy(1)(4) == InsecureSeededEntropy(1)(4)
    True
    """

    def __init__(self, seed: int, label: str = "") -> None:
        self._prefix = hashlib.sha256(f"insecure-seeded-entropy/{seed}/{label}".encode()).digest()
        self._counter = 0
        self._buffer = b""

    def __call__(self, n_bytes: int) -> bytes:
        """Return the next ``n_bytes`` of the stream."""
        stream = bytearray(self._buffer)
        while len(stream) < n_bytes:
            stream += hashlib.sha256(self._prefix + self._counter.to_bytes(8, "big")).digest()
            self._counter += 1
        self._buffer = bytes(stream[n_bytes:])
        return bytes(stream[:n_bytes])
