"""Learners, modes, attacks and engines of other packages: found by their entry points, imported by name alone.

A package adds one with two lines of its ``pyproject.toml``::

    [project.entry-points."analytic_secagg.learners"]
    centred-ridge = "centred_ridge:ENTRY"

A name that this package has itself is never looked up here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from importlib import metadata
from typing import Any

from analytic.errors import AnalyticError


class ExtensionError(AnalyticError, ValueError):
    """An extension that is named cannot be used: two packages have it, or it cannot be imported."""


class Group(StrEnum):
    """A group of entry points; docs/how-to/extend.md says what the objects are."""

    LEARNERS = "analytic_secagg.learners"
    MODES = "analytic_secagg.modes"
    ATTACKS = "analytic_secagg.attacks"
    ENGINES = "analytic_secagg.engines"

    @property
    def kind(self) -> str:
        """The singular noun for one of them."""
        return self.value.rpartition(".")[2].removesuffix("s")


def installed(group: Group) -> list[metadata.EntryPoint]:
    """List the entry points of a group in the order of their names; nothing is imported."""
    return sorted(metadata.entry_points(group=group), key=lambda one: (one.name, origin(one)))


def origin(one: metadata.EntryPoint) -> str:
    """Return the distribution that an entry point comes from, its version and the object that it names."""
    assert one.dist is not None, "an entry point of an installed distribution knows it"
    return f"{one.dist.name} {one.dist.version} ({one.value})"


def find(group: Group, name: str, kind: type[Any] = object) -> Any | None:
    """Import the extension of a name and return its object; None where no installed package has one.

    Args:
        group: where the name is looked up.
        name: of the extension.
        kind: the type that the object must have.

    Raises:
        ExtensionError: two packages have one of this name, it cannot be imported, or it is another object.
    """
    found = [one for one in installed(group) if one.name == name]
    if not found:
        return None
    if len(found) > 1:
        origins = " and ".join(map(origin, found))
        raise ExtensionError(f"the {group.kind} {name} must come from one package, not from {origins}: uninstall one")
    (one,) = found
    try:
        value = one.load()
    except Exception as error:  # whatever a module does when it is imported
        raise ExtensionError(
            f"the {group.kind} {name} of {origin(one)} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(value, kind):
        raise ExtensionError(
            f"the {group.kind} {name} of {origin(one)} must be a {kind.__name__}, not a {type(value).__name__}"
        )
    if (own := getattr(value, "name", name)) != name:
        raise ExtensionError(f"the {group.kind} {name} of {origin(one)} must have this name, not {own!r}")
    return value


def unknown(group: Group, name: str, own: Iterable[str]) -> str:
    """Return the error for a name that nobody has: the names there are, and how a package adds one.

    Args:
        group: where the name was looked up.
        name: what came.
        own: the names that this package has itself.
    """
    names = dict.fromkeys([*own, *(one.name for one in installed(group))])
    return (
        f"{group.kind} must be one of {', '.join(names)}, not {name!r}; a package adds one by an entry point of the "
        f"group {group} (docs/how-to/extend.md)"
    )
