"""Provenance: what rows were made with. Rows of different recipes are refused, and the refusal says which part differs.

A roster states the recipe of everybody's features and the schema of everybody's tables. A training proposal has a
digest of each part, and so has the context of its sum: parties whose rosters differ are in different sums.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, ValidationError

from analytic_secagg.datasets import BROKEN_ARCHIVE
from analytic_secagg.site.strict_models import StrictModel


class Recipe(StrictModel):
    """What the features of a frozen backbone depend on, of the settings that the command ``features`` stores.

    Args:
        backbone: its name.
        weights: their name, or the digest of their file.
        layers: whose maps are pooled.
        pool: how.
        transform: what images go through before.
        mirror: whether each image's mirror image counts too.
    """

    backbone: str
    weights: str
    layers: Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value))] = ()
    pool: str = "mean"
    transform: str
    mirror: bool = False

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each part, hexadecimal."""
        return {
            name: hashlib.sha256(json.dumps(value).encode()).hexdigest()
            for name, value in self.model_dump(mode="json").items()
        }

    def to_toml(self) -> str:
        """Return the table ``[features]`` of a roster."""
        return "\n".join(
            ["[features]", *(f"{name} = {json.dumps(value)}" for name, value in self.model_dump(mode="json").items())]
        )

    def differences(self, other: Recipe) -> str:
        """Return which parts differ, with both values."""
        ours, theirs = self.model_dump(mode="json"), other.model_dump(mode="json")
        return ", ".join(
            f"{name} {json.dumps(ours[name])} and not {json.dumps(theirs[name])}"
            for name in ours
            if ours[name] != theirs[name]
        )


def recipe_of(place: str) -> Recipe | None:
    """Return how an archive's features were computed; None where it does not say, or cannot be read.

    Backbone, weights and transform are enough: what else it leaves out is as it is by default.
    """
    try:
        with Path(place).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            said = json.loads(str(archive["settings"])) if "settings" in archive.files else {}
            return Recipe.model_validate({name: said[name] for name in Recipe.model_fields if name in said})
    except (OSError, KeyError, TypeError, ValidationError, *BROKEN_ARCHIVE):
        return None


def provenance(features: Recipe | None, columns: str) -> dict[str, str]:
    """Return a digest of each part of what a roster says of rows; nothing where it says nothing.

    Args:
        features: the recipe of features.
        columns: the fingerprint of the schema of tables; empty where nobody says.
    """
    of_features = {} if features is None else features.digests
    return dict(sorted({**of_features, **({"columns": columns} if columns else {})}.items()))


def refusal(agreed: Mapping[str, str], proposed: Mapping[str, Any]) -> str:
    """Return why a party takes no part in a sum of rows of another provenance; empty where both are the same."""
    known = (*Recipe.model_fields, "columns")
    names = [name for name in known if agreed.get(name) != proposed.get(name)]
    if not names and agreed == proposed:
        return ""
    unsaid = "" if agreed else "; this party's roster states nothing of them"
    unsaid = unsaid if proposed else "; the server states nothing of them"
    return (
        "rows that are made otherwise do not add up to one model, and of this sum's rows the server states other "
        f"{', '.join(names) or 'parts'} than this party's roster{unsaid}. Compare [features] and columns in all copies "
        "of the roster"
    )
