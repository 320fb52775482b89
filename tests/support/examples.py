"""How many examples a property tries: all of the profile's, or a part where one example is expensive."""

from __future__ import annotations

from hypothesis import settings


def examples(part: int, *, most: int = 10**6) -> settings:
    """Try one ``part``-th of the profile's examples, but at least 10 and never more than ``most``."""
    return settings(max_examples=min(max(10, settings.default.max_examples // part), most))
