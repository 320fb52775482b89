"""Image files in folders by class, as torchvision's ImageFolder reads them; the extra is imported where needed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.errors import DataError, UsageError


def vision(module: str, *, extra: str = "vision") -> Any:
    """The module of that name, which an extra brings.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"features need {'torch and torchvision' if extra == 'vision' else module} ({error}); install the extra: "
            f"pip install '.[{extra}]'"
        ) from error


def first_lines(text: str) -> str:
    """The start of one of these libraries' long messages, on one line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return " ".join(lines[:3])[:300].rstrip(" .")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Images:
    """Image files of one folder with a subfolder for each class.

    Args:
        folder: where they are.
        paths: every image, class by class.
        labels: places in ``classes``, shape (n,).
        classes: names of the subfolders, sorted.
    """

    folder: Path
    paths: tuple[Path, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def sha256(self, part: slice = slice(None)) -> str:
        """A digest of names, sizes and times of change, which tells changed images without reading every one."""
        digest = hashlib.sha256()
        for path in self.paths[part]:
            status = path.stat()
            digest.update(f"{path.relative_to(self.folder)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        return digest.hexdigest()


def find_images(folder: Path, test_folder: Path | None = None, *, reads: str = "images") -> tuple[Images, Images]:
    """Training and test files: ``folder/train`` and ``folder/test``, or ``folder`` and ``test_folder``.

    Args:
        folder, test_folder: where they are.
        reads: which files: ``images``, ``texts`` (``.txt``) or all ``files``.

    Raises:
        UsageError: the vision extra is not installed.
        DataError: a folder without images, without class subfolders or with other classes than its counterpart.
    """
    if test_folder is None:
        if not ((folder / "train").is_dir() and (folder / "test").is_dir()):
            raise DataError(
                f"{folder} needs the subfolders train and test, each with a subfolder for every class; or name the "
                "test images' folder with --test-images"
            )
        folder, test_folder = folder / "train", folder / "test"
    train, test = _list_images(folder, reads), _list_images(test_folder, reads)
    if train.classes != test.classes:
        differing = sorted(set(train.classes) ^ set(test.classes))
        raise DataError(
            f"{folder} and {test_folder} need the same class subfolders; only one has {', '.join(differing[:5])}"
        )
    return train, test


def _list_images(folder: Path, reads: str) -> Images:
    datasets = vision("torchvision.datasets")
    if not folder.is_dir():
        raise DataError(f"the folder {folder} does not exist; name a folder with a subfolder of images for every class")
    try:
        chosen = {"images": None, "texts": lambda path: path.endswith(".txt"), "files": lambda path: True}[reads]
        listing = datasets.ImageFolder(str(folder), is_valid_file=chosen)
    except OSError as error:
        raise DataError(f"{folder} needs a subfolder of images for every class: {first_lines(str(error))}") from error
    return Images(
        folder=folder,
        paths=tuple(Path(path) for path, _ in listing.samples),
        labels=np.array([label for _, label in listing.samples], dtype=np.int64),
        classes=tuple(listing.classes),
    )
