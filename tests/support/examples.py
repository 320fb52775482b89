"""How many examples a law tries that holds for many parameters, each of which tries its own."""

from __future__ import annotations

from hypothesis import settings


def a_part(of: int, *, most: int = 10**6) -> settings:
    """One ``of``-th of the profile's examples, but at least 10 and never more than ``most``."""
    return settings(max_examples=min(max(10, settings.default.max_examples // of), most))
