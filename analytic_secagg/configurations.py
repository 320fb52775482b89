"""Configurations: a run's learner and all its parameters, which owners of rows agree on by a digest before any sum."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from analytic.learner import AnalyticLearner, canonical_context
from secagg.encoding import split_parts


def configuration_digest(learner: AnalyticLearner[Any]) -> bytes:
    """Return the SHA-256 of the learner's name and all its parameters, which a roster or a site's file lists.

    An evaluation's has the configuration of the model that is judged, and not the model.
    """
    return hashlib.sha256(canonical_context(learner)).digest()


def described(learner: AnalyticLearner[Any]) -> dict[str, Any]:
    """Return the learner's name and parameters as people read them, nested as the learner is.

    Example:
        >>> from analytic import AFL, RowFormat
        >>> described(AFL(n_features=3, n_targets=2, feature_format=RowFormat.parse("Q4.11"), max_rows=50))["name"]
        'afl'
    """
    (head,) = split_parts(canonical_context(learner))
    found: dict[str, Any] = json.loads(head)
    return found


def digests(value: object) -> tuple[bytes, ...]:
    """Return the digests that a file lists, 64 hexadecimal digits each.

    Raises:
        ValueError: another value.
    """
    if not isinstance(value, (list, tuple)):
        raise ValueError("configurations must be a list of digests, as the command configuration prints them")
    found = []
    for one in value:
        if not isinstance(one, bytes) and not (isinstance(one, str) and re.fullmatch("[0-9a-f]{64}", one)):
            raise ValueError("a configuration is named by 64 hexadecimal digits, as the command configuration prints")
        found.append(one if isinstance(one, bytes) else bytes.fromhex(one))
    return tuple(found)
