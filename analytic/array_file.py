"""Arrays and what is said of them as one safetensors file, which says when it was damaged or mixed up.

The metadata has one entry, a line of JSON: what the arrays are, each one's digest, and a digest of the line itself.
Digests do not tell who wrote a file: whoever can write it can write a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFile:
    """One kind of such files.

    Args:
        entry: the metadata's one entry.
        version: of the kind.
        what: what a file holds, in words.
        remedy: what to do about one that does not read.
        error: what is raised.
    """

    entry: str
    version: int
    what: str
    remedy: str
    error: type[Exception]

    def to_bytes(self, arrays: Mapping[str, NDArray[Any]], description: Mapping[str, Any]) -> bytes:
        """Return the bytes of a file; equal content has equal bytes."""
        said = {"version": self.version, **description, "arrays": _digests(arrays)}
        return save_arrays(dict(arrays), {self.entry: line_of_json(said | {"sha256": _digest(said)})})

    def from_bytes(self, content: bytes, source: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the arrays, and what is said of them beside version and digests.

        Args:
            content: the bytes.
            source: where they come from, for errors.

        Raises:
            Exception: ``error``; damaged bytes, another version, or a file of another kind.
        """
        try:
            arrays = load_arrays(content)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise self.error(f"{source} is no safetensors file of numbers ({error}); {self.remedy}") from error
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        try:
            said: Any = json.loads(header["__metadata__"][self.entry])
        except (KeyError, ValueError, RecursionError) as error:
            raise self.error(
                f"{source} does not describe {self.what}: its metadata lacks {self.entry} as JSON; {self.remedy}"
            ) from error
        version = said.pop("version", None) if isinstance(said, dict) else None
        if version != self.version:
            raise self.error(
                f"{source} has version {version!r} and this release reads version {self.version}; load it with the "
                f"release that wrote it, or {self.remedy}"
            )
        stated = said.pop("sha256", None)
        try:
            digest = _digest({"version": version, **said})
        except ValueError as error:
            raise self.error(f"{source} describes itself by a number that is not finite; {self.remedy}") from error
        if stated != digest:
            raise self.error(
                f"{source} was changed after it was written: its description's digest does not fit; {self.remedy}"
            )
        if said.pop("arrays", None) != _digests(arrays):
            raise self.error(
                f"{source} was damaged or changed after it was written: the digest of an array does not fit; "
                f"{self.remedy}"
            )
        return arrays, said


def owner_only(path: str, flags: int) -> int:
    """Open a file that its owner alone may read and write (mode 0600): an ``opener`` for ``open``."""
    return os.open(path, flags, 0o600)


def _digests(arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in sorted(arrays.items())}


def _digest(description: Mapping[str, Any]) -> str:
    """SHA-256 of the description without its digest."""
    return hashlib.sha256(line_of_json(description).encode()).hexdigest()


def line_of_json(description: Mapping[str, Any]) -> str:
    """Return one line of JSON with sorted names and no spaces: the same text for the same description."""
    return json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
