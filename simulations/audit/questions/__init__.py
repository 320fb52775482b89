"""Questions to the library whose answers are known: what it computes from known inputs, and what it refuses."""

from collections.abc import Callable

Question = tuple[str, Callable[[], object]]
"""Its name, and how it is asked."""
