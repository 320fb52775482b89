"""Communication cost of a sum for one party, computed from the message formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from secagg.wire import HEADER_BYTES

COUNT_BYTES = 4
"""Length of the count before a list."""

PARTY_BYTES = 4
"""Length of a party's number in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyCost:
    """Messages and bytes of one party when nobody drops out.

    Args:
        messages_up: messages sent.
        bytes_up: bytes sent, of which ``vector_bytes`` are the vector.
        bytes_down: bytes received.
        vector_bytes: ceil(bits / 8) bytes an entry.
    """

    messages_up: int
    bytes_up: int
    bytes_down: int
    vector_bytes: int

    @classmethod
    def of_payloads(
        cls, up: Sequence[int], down: Sequence[int], *, vector_bytes: int, signature_bytes: int = 0
    ) -> Self:
        """Return the cost of messages with payloads of these sizes in bytes, each with a header and a signature."""
        beside = HEADER_BYTES + signature_bytes
        return cls(
            messages_up=len(up),
            bytes_up=sum(up) + len(up) * beside,
            bytes_down=sum(down) + len(down) * beside,
            vector_bytes=vector_bytes,
        )

    def __add__(self, other: Self) -> Self:
        """Return the sum of two costs."""
        return type(self)(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})

    def __str__(self) -> str:
        """Describe the cost as the end of a sentence."""
        messages = "1 message" if self.messages_up == 1 else f"{self.messages_up} messages"
        return (
            f"sends {messages}, {self.bytes_up} bytes ({self.vector_bytes} of them the vector), "
            f"and receives {self.bytes_down} bytes"
        )
