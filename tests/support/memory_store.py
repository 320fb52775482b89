"""A store that outlives its session, for tests in which processes die."""

from __future__ import annotations


class MemoryStore:
    """One record, as a file would keep it."""

    def __init__(self, record: bytes | None = None) -> None:
        self.record = record

    def load(self) -> bytes | None:
        return self.record

    def save(self, record: bytes) -> None:
        self.record = record
