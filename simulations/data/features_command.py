"""The command ``features``: files through a frozen backbone, in the form that ``compare --data`` reads.

Work is saved in chunks beside the output, so a run that was stopped goes on where it stood. A batch never crosses a
chunk, so the features have the same bits whether it was stopped or not (on one machine with one release of torch).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option, part
from analytic_secagg.console.output_files import OutputFile, refuse_same_file
from analytic_secagg.errors import DataError, OutputError
from simulations.command_line.progress import image_bar
from simulations.data.extractors import (
    DEFAULT_WEIGHTS,
    IMAGES,
    Extractor,
    FeatureSettings,
    Looks,
    extractor,
    fingerprint,
    pick_device,
)
from simulations.data.images import Images, find_images, vision

CHUNK_IMAGES = 256
"""Images between two saves, at least: one chunk of decoded images is in memory, 150 MB."""

Features = NDArray[np.float32]


def extract_features(
    train: Images,
    test: Images,
    settings: FeatureSettings,
    out: Path,
    *,
    tick: Callable[[int], None] = lambda images: None,
) -> Looks:
    """Write ``x_train``, ``y_train``, ``x_test``, ``y_test``, ``classes`` and ``settings`` (JSON) to an npz file.

    Features are float32. Until the file is whole, chunks of them stand in ``OUT.parts``; called again with the same
    settings, it goes on from there. A chunk whose images have changed is computed again.

    Args:
        train: training images.
        test: test images.
        settings: how features are computed.
        out: the npz file; an older one is replaced in one step at the end.
        tick: called with numbers of images that are done.

    Returns:
        What is odd in the images that were read; those of finished chunks are not read again.

    Raises:
        UsageError: the vision extra or a GPU is missing.
        DataError: an image or the weights cannot be used, or the chunks belong to a run with other settings.
        OutputError: something cannot be written.
    """
    output = OutputFile(out)  # says at once what would be in the way
    device = pick_device(settings.device)
    said = fingerprint(settings, device)
    parts, computation = out.with_name(f"{out.name}.parts"), _Computation(settings, device)
    try:
        _open_parts(parts, said)
        output.fill(partial(np.savez, **_arrays(train, test, computation, parts, said, tick)))
        shutil.rmtree(parts)
    except OutputError:
        raise
    except OSError as error:
        place = error.filename or out
        raise OutputError(f"cannot write {place}: {error.strerror or error}; free space or name another") from error
    return computation.looks


def _arrays(
    train: Images,
    test: Images,
    compute: _Computation,
    parts: Path,
    fingerprint: Mapping[str, Any],
    tick: Callable[[int], None],
) -> dict[str, Any]:
    """What the npz file holds, by name."""
    return {
        "x_train": np.concatenate(list(_chunks(compute, train, parts, "train", tick))),
        "y_train": train.labels,
        "x_test": np.concatenate(list(_chunks(compute, test, parts, "test", tick))),
        "y_test": test.labels,
        "classes": np.array(train.classes),
        "settings": np.array(json.dumps({**fingerprint, "train": train.sha256(), "test": test.sha256()})),
    }


class _Computation:
    """A source of features on its device, loaded when the first chunk needs it."""

    def __init__(self, settings: FeatureSettings, device: str) -> None:
        self._settings, self._device = settings, device
        self._extractor: Extractor | None = None
        self.looks = Looks()

    @property
    def chunk_images(self) -> int:
        """Files of a chunk: whole batches."""
        return self._settings.batch_size * -(-CHUNK_IMAGES // self._settings.batch_size)

    def features(self, paths: Sequence[Path], tick: Callable[[int], None]) -> Features:
        """Features of some files, shape (n, d)."""
        torch = vision("torch")
        if self._extractor is None:
            self._extractor = extractor(self._settings, self._device, self.looks)
        found = []
        deterministic = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        pool = ThreadPoolExecutor(self._settings.workers)
        try:
            files = pool.map(self._read, paths)  # read ahead while the backbone works
            with deterministic, torch.inference_mode():
                for start in range(0, len(paths), self._settings.batch_size):
                    batch = [next(files) for _ in paths[start : start + self._settings.batch_size]]
                    found.append(np.asarray(self._extractor.features(batch), dtype=np.float32))
                    tick(len(batch))
        finally:
            pool.shutdown(cancel_futures=True)
        out = np.concatenate(found)
        if not np.isfinite(out).all():
            raise DataError(
                f"the features hold NaN or infinity; {self._settings.weights or self._settings.backbone} must be "
                "damaged: name other weights"
            )
        return out

    def _read(self, path: Path) -> Any:
        assert self._extractor is not None
        try:
            return self._extractor.read(path)
        except Exception as error:  # decoders of damaged files raise whatever they run into
            what = "image" if self._settings.reads == IMAGES else "file"
            raise DataError(
                f"cannot read the {what} {path} ({error}); repair it or take it out of its folder"
            ) from error


def _chunks(
    compute: _Computation, images: Images, parts: Path, name: str, tick: Callable[[int], None]
) -> Iterator[Features]:
    """The features of all images, chunk by chunk, from disk where they are there already."""
    for start in range(0, len(images.paths), compute.chunk_images):
        place = slice(start, start + compute.chunk_images)
        paths, file = images.paths[place], parts / f"{name}-{start:08}-{images.sha256(place)[:16]}.npy"
        if file.exists():
            yield _read_chunk(file, len(paths))
            tick(len(paths))
        else:
            features = compute.features(paths, tick)
            OutputFile(file).fill(partial(np.save, arr=features))
            yield features


def _read_chunk(file: Path, n_rows: int) -> Features:
    try:
        features: Features = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read {file} ({error}); delete it, and it is computed again") from error
    if features.ndim != 2 or len(features) != n_rows or features.dtype != np.float32:
        raise DataError(
            f"{file} must hold float32 of shape ({n_rows}, features), not {features.dtype} of shape "
            f"{features.shape}; delete it"
        )
    return features


def _open_parts(parts: Path, fingerprint: Mapping[str, Any]) -> None:
    """Make sure that the chunks in ``parts`` are this run's."""
    file = parts / "settings.json"
    if not file.exists():
        parts.mkdir(exist_ok=True)
        OutputFile(file).write(json.dumps(fingerprint, indent=2))
        return
    try:
        earlier = json.loads(file.read_bytes())
    except ValueError as error:
        raise DataError(f"{file} is damaged ({error}); delete the folder {parts} to start over") from error
    differing = sorted(key for key in {*earlier, *fingerprint} if earlier.get(key) != fingerprint.get(key))
    if differing:
        raise DataError(
            f"{parts} holds chunks of a run that differs in {', '.join(differing)}; repeat that run's settings to go "
            "on, or delete the folder to start over"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesOptions:
    """All that ``features`` understands."""

    images: Path = option(
        "with train/CLASS/ and test/CLASS/, or just CLASS/; of a source of texts its .txt files", file, metavar="FOLDER"
    )
    test_images: Path | None = option(
        "test images by CLASS/; --images then has the training images", file, default=None, metavar="FOLDER"
    )
    settings: FeatureSettings = part(FeatureSettings)
    out: Path = option("where the features go", file, metavar="FILE.npz")

    def __post_init__(self) -> None:
        weights = self.settings.weights
        refuse_same_file(
            {"--weights": Path(weights) if weights and weights != DEFAULT_WEIGHTS else None, "--out": self.out}
        )


def run(options: FeaturesOptions) -> int:
    """Compute and write; the exit code.

    Raises:
        FederationError: wrong input, or a file that cannot be written.
    """
    OutputFile(options.out)  # says at once what would be in the way
    train, test = find_images(options.images, options.test_images, reads=options.settings.reads)
    with image_bar(options.settings.backbone, len(train.paths) + len(test.paths)) as tick:
        looks = extract_features(train, test, options.settings, options.out, tick=tick)
    with np.load(options.out, allow_pickle=False) as archive:
        n_features = archive["x_test"].shape[1]
    print(
        f"{options.out}: {len(train.paths)} training and {len(test.paths)} test rows of {n_features} "
        f"features, {len(train.classes)} classes"
    )
    for sentence in (*looks.said(), *_equal_rows(options.out, train, test)):
        print(sentence)
    return 0


def _equal_rows(path: Path, train: Images, test: Images) -> Iterator[str]:
    """Yield how many rows of features are equal, whatever made them so, and of which images the first two are."""
    with np.load(path, allow_pickle=False) as archive:
        rows = [row.tobytes() for part in ("x_train", "x_test") for row in archive[part]]
    first: dict[bytes, int] = {}
    repeated = [(first[row], place) for place, row in enumerate(rows) if first.setdefault(row, place) != place]
    if repeated:
        paths, n_train = (*train.paths, *test.paths), len(train.paths)
        one, other = repeated[0]
        yield (
            f"WARNING: {len(repeated)} of {len(rows)} rows of features repeat another one, such as {paths[other]} that "
            f"of {paths[one]}: equal, blank or clipped images"
        )
        if both := sum(one < n_train <= other for one, other in repeated):
            yield f"WARNING: {both} of {len(test.paths)} test rows are training rows too, on which nothing is tested"


COMMAND = Command(
    name="features",
    summary="compute features of images or texts with a frozen backbone, for compare --data",
    examples="""examples:
  analytic-secagg features --backbone resnet18 --images cifar10 --weights DEFAULT --out features.npz
      cifar10/train/CLASS/*.png and cifar10/test/CLASS/*.png; torchvision downloads its weights
  analytic-secagg features --backbone resnet18 --images train --test-images val --weights resnet18.pth \\
      --transform weights --out features.npz
      two folders, weights from a file, the preprocessing that these weights were trained with
  analytic-secagg features --backbone resnet18 --layers layer3,layer4 --images cifar10 --weights DEFAULT \\
      --out features.npz
      the pooled maps of two stages
  analytic-secagg features --backbone sentence-transformers:all-MiniLM-L6-v2 --images letters --out letters.npz
      letters/train/CLASS/*.txt and letters/test/CLASS/*.txt
  analytic-secagg compare --data features.npz
      what the features are for

A run that was stopped goes on from FILE.parts when it is started again.

""",
    options=FeaturesOptions,
    run=run,
    fine="the file is written",
)
