"""The command ``features``: images through a frozen torchvision backbone, in the form that ``compare --data`` reads.

What a backbone's features are (its last layer, the classifier for ImageNet, is left out):

- ``resnet18``: the last stage after global average pooling, 512 numbers;
- ``vgg11``: the classifier without its last layer, after its second ReLU, 4096 numbers;
- ``vit_b_16``: the class token after the encoder's layer norm, 768 numbers.

Work is saved in chunks beside the output, so a run that was stopped goes on where it stood. A batch never crosses a
chunk, so the features have the same bits whether it was stopped or not (on one machine with one release of torch).

torch and torchvision come with the ``vision`` extra and are imported only when they are needed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federation.console.arguments import count, file, whole
from federation.console.declaration import Command, option, part
from federation.console.output_files import OutputFile, refuse_same_file
from federation.errors import DataError, OutputError, UsageError
from simulations.command_line.progress import image_bar
from simulations.data.images import Images, find_images, first_lines, vision

CHUNK_IMAGES = 256
"""Images between two saves, at least: one chunk of decoded images is in memory, 150 MB."""

DEFAULT_WEIGHTS = "DEFAULT"
MOST_WORKERS = 256
NORMALS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "afl": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
"""Means and deviations of the transforms that resize to 224 x 224: what the backbones were trained with, and AFL's."""
TRANSFORMS = (*NORMALS, "weights")
DEVICES = ("auto", "cpu", "cuda")

Features = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backbone:
    """Where a torchvision model ends for us.

    Args:
        head: name of the submodule that is replaced by the identity.
        n_features: numbers an image.
    """

    head: str
    n_features: int


BACKBONES = {
    "resnet18": Backbone(head="fc", n_features=512),
    "vgg11": Backbone(head="classifier.6", n_features=4096),
    "vit_b_16": Backbone(head="heads", n_features=768),
}
"""Backbones by torchvision's names: those of AFL's table 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSettings:
    """How features are computed.

    Raises:
        UsageError: an unknown choice, or a number below 1.
    """

    backbone: str = option("torchvision's name: 512, 4096 or 768 features", choices=BACKBONES.keys())
    weights: str = option(
        "a state dict (torch.save or safetensors), or torchvision's own, downloaded once",
        lambda text: str(file(text)),
        metavar="FILE|DEFAULT",
    )
    transform: str = option(
        "imagenet: resize to 224 x 224, ImageNet's mean and deviation; afl: the same with 0.5 and 0.5, to reproduce "
        "that paper; weights: as torchvision tests its weights, the middle of a resized image",
        choices=TRANSFORMS,
        default="imagenet",
    )
    mirror: bool = option("average the features of each image and of its mirror image", default=False)
    batch_size: int = option("images at a time", count, default=64, metavar="N")
    device: str = option("auto takes a GPU when there is one", choices=DEVICES, default="auto")
    workers: int = option(
        "threads that read images",
        lambda text: whole(text, at_least=1, at_most=MOST_WORKERS),
        default=4,
        metavar="N",
    )

    def __post_init__(self) -> None:
        for value, choices in ((self.backbone, BACKBONES), (self.transform, TRANSFORMS), (self.device, DEVICES)):
            if value not in choices:
                raise UsageError(f"{value!r} is none of {', '.join(choices)}")
        if min(self.batch_size, self.workers) < 1:
            raise UsageError(f"a batch size and workers are at least 1, not {self.batch_size} and {self.workers}")


def extract_features(
    train: Images,
    test: Images,
    settings: FeatureSettings,
    out: Path,
    *,
    tick: Callable[[int], None] = lambda images: None,
) -> None:
    """Write ``x_train``, ``y_train``, ``x_test``, ``y_test``, ``classes`` and ``settings`` (JSON) to an npz file.

    Features are float32. Until the file is whole, chunks of them stand in ``OUT.parts``; called again with the same
    settings, it goes on from there. A chunk whose images have changed is computed again.

    Args:
        train: training images.
        test: test images.
        settings: how features are computed.
        out: the npz file; an older one is replaced in one step at the end.
        tick: called with numbers of images that are done.

    Raises:
        UsageError: the vision extra or a GPU is missing.
        DataError: an image or the weights cannot be used, or the chunks belong to a run with other settings.
        OutputError: something cannot be written.
    """
    output = OutputFile(out)  # says at once what would be in the way
    device = _device(settings.device)
    fingerprint = _fingerprint(settings, device)
    parts = out.with_name(f"{out.name}.parts")
    try:
        _open_parts(parts, fingerprint)
        output.fill(partial(np.savez, **_arrays(train, test, _Computation(settings, device), parts, fingerprint, tick)))
        shutil.rmtree(parts)
    except OutputError:
        raise
    except OSError as error:
        place = error.filename or out
        raise OutputError(f"cannot write {place}: {error.strerror or error}; free space or name another") from error


def load_backbone(name: str, weights: str = DEFAULT_WEIGHTS) -> Any:
    """The torchvision model without its head, in eval mode and float32, as an ``nn.Module``.

    Args:
        name: one of ``BACKBONES``.
        weights: ``DEFAULT``, which torchvision downloads and keeps, or a file.

    Raises:
        UsageError: the vision extra is not installed.
        DataError: the weights cannot be had or read, or do not fit this backbone.
    """
    torch, torchvision, head = vision("torch"), vision("torchvision"), BACKBONES[name].head
    state = _default_state(name) if weights == DEFAULT_WEIGHTS else _read_state(Path(weights))
    with torch.device("meta"):  # no memory and no random start: every tensor comes from the file
        model = torchvision.models.get_model(name, weights=None)
    parent, _, last = head.rpartition(".")
    setattr(model.get_submodule(parent), last, torch.nn.Identity())
    body = {key: value for key, value in state.items() if not key.startswith(f"{head}.")}
    try:
        model.load_state_dict(body, assign=True)
    except RuntimeError as error:
        raise DataError(
            f"{weights} does not fit {name}: {first_lines(str(error))}; name this backbone's weights"
        ) from error
    return model.float().eval().requires_grad_(False)


def image_transform(name: str, transform: str = "imagenet") -> Callable[[Any], Any]:
    """What turns a PIL image into the backbone's input, shape (3, 224, 224)."""
    if transform == "weights":
        chosen: Callable[[Any], Any] = vision("torchvision").models.get_model_weights(name).DEFAULT.transforms()
        return chosen
    steps = vision("torchvision.transforms")
    mean, deviation = NORMALS[transform]
    composed: Callable[[Any], Any] = steps.Compose(
        [steps.Resize((224, 224)), steps.ToTensor(), steps.Normalize(mean=mean, std=deviation)]
    )
    return composed


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
    """A backbone on its device, loaded when the first chunk needs it."""

    def __init__(self, settings: FeatureSettings, device: str) -> None:
        self._settings, self._device = settings, device
        self._model: Any = None
        self._transform: Callable[[Any], Any] = image_transform(settings.backbone, settings.transform)

    @property
    def chunk_images(self) -> int:
        """Images of a chunk: whole batches."""
        return self._settings.batch_size * -(-CHUNK_IMAGES // self._settings.batch_size)

    @property
    def n_features(self) -> int:
        return BACKBONES[self._settings.backbone].n_features

    def features(self, paths: Sequence[Path], tick: Callable[[int], None]) -> Features:
        """Features of some images, shape (n, n_features)."""
        torch = vision("torch")
        if self._model is None:
            self._model = load_backbone(self._settings.backbone, self._settings.weights).to(self._device)
        out = np.empty((len(paths), self.n_features), dtype=np.float32)
        deterministic = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        pool = ThreadPoolExecutor(self._settings.workers)
        try:
            images = pool.map(self._input, paths)  # read ahead while the backbone works
            with deterministic, torch.inference_mode():
                for start in range(0, len(paths), self._settings.batch_size):
                    batch = [next(images) for _ in paths[start : start + self._settings.batch_size]]
                    stacked = torch.stack(batch).to(self._device)
                    result = self._model(stacked)
                    if self._settings.mirror:
                        result = (result + self._model(stacked.flip(3))) / 2
                    out[start : start + len(batch)] = result.cpu().numpy()
                    tick(len(batch))
        finally:
            pool.shutdown(cancel_futures=True)
        if not np.isfinite(out).all():
            raise DataError(
                f"the features hold NaN or infinity; {self._settings.weights} must be damaged: name other weights"
            )
        return out

    def _input(self, path: Path) -> Any:
        try:
            return self._transform(vision("torchvision.datasets.folder").pil_loader(str(path)))
        except Exception as error:  # decoders of damaged files raise whatever they run into
            raise DataError(
                f"cannot read the image {path} ({error}); repair it or take it out of its folder"
            ) from error


def _chunks(
    compute: _Computation, images: Images, parts: Path, name: str, tick: Callable[[int], None]
) -> Iterator[Features]:
    """The features of all images, chunk by chunk, from disk where they are there already."""
    for start in range(0, len(images.paths), compute.chunk_images):
        place = slice(start, start + compute.chunk_images)
        paths, file = images.paths[place], parts / f"{name}-{start:08}-{images.sha256(place)[:16]}.npy"
        if file.exists():
            yield _read_chunk(file, (len(paths), compute.n_features))
            tick(len(paths))
        else:
            features = compute.features(paths, tick)
            OutputFile(file).fill(partial(np.save, arr=features))
            yield features


def _read_chunk(file: Path, shape: tuple[int, int]) -> Features:
    try:
        features: Features = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read {file} ({error}); delete it, and it is computed again") from error
    if features.shape != shape or features.dtype != np.float32:
        raise DataError(
            f"{file} must hold float32 of shape {shape}, not {features.dtype} of shape {features.shape}; delete it"
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


def _fingerprint(settings: FeatureSettings, device: str) -> dict[str, Any]:
    """Everything but the image that a feature depends on; the number of reading threads is not among it."""
    described = asdict(settings) | {"device": device, "weights": _weights_name(settings)}
    del described["workers"]
    versions = {name: str(vision(name).__version__) for name in ("torch", "torchvision", "PIL")}
    return described | versions


def _weights_name(settings: FeatureSettings) -> str:
    if settings.weights == DEFAULT_WEIGHTS:
        return str(vision("torchvision").models.get_model_weights(settings.backbone).DEFAULT)
    try:
        with Path(settings.weights).open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise DataError(f"cannot read {settings.weights}: {error.strerror or error}; name a weights file") from error


def _default_state(name: str) -> Mapping[str, Any]:
    weights = vision("torchvision").models.get_model_weights(name).DEFAULT
    try:
        state: Mapping[str, Any] = weights.get_state_dict(progress=True, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"cannot download {weights} from {weights.url} ({error}); download it elsewhere and name the file with "
            "--weights"
        ) from error
    return state


def _read_state(path: Path) -> Mapping[str, Any]:
    """The tensors of a file by name; nothing but tensors is ever unpickled."""
    torch = vision("torch")
    try:
        if path.suffix == ".safetensors":
            state = vision("safetensors.torch").load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # pickle, zip and torch each have their own
        reason = first_lines(str(error)) or type(error).__name__
        raise DataError(
            f"cannot read weights from {path}: {reason}; it must be a state dict, written by "
            "torch.save(model.state_dict(), FILE) or as safetensors"
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise DataError(
            f"{path} must hold a state dict, names with tensors, and holds something else: save the state dict alone"
        )
    return state


def _device(asked: str) -> str:
    available = bool(vision("torch").cuda.is_available())
    if asked == "cuda" and not available:
        raise UsageError("torch finds no GPU here; use --device cpu, or auto, which takes one when there is one")
    return "cuda" if available and asked != "cpu" else "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesOptions:
    """All that ``features`` understands."""

    images: Path = option("with train/CLASS/ and test/CLASS/, or just CLASS/", file, metavar="FOLDER")
    test_images: Path | None = option(
        "test images by CLASS/; --images then has the training images", file, default=None, metavar="FOLDER"
    )
    settings: FeatureSettings = part(FeatureSettings)
    out: Path = option("where the features go", file, metavar="FILE.npz")

    def __post_init__(self) -> None:
        weights = self.settings.weights
        refuse_same_file({"--weights": None if weights == DEFAULT_WEIGHTS else Path(weights), "--out": self.out})


def run(options: FeaturesOptions) -> int:
    """Compute and write; the exit code.

    Raises:
        FederationError: wrong input, or a file that cannot be written.
    """
    OutputFile(options.out)  # says at once what would be in the way
    train, test = find_images(options.images, options.test_images)
    with image_bar(options.settings.backbone, len(train.paths) + len(test.paths)) as tick:
        extract_features(train, test, options.settings, options.out, tick=tick)
    print(
        f"{options.out}: {len(train.paths)} training and {len(test.paths)} test rows of "
        f"{BACKBONES[options.settings.backbone].n_features} features, {len(train.classes)} classes"
    )
    return 0


COMMAND = Command(
    name="features",
    summary="compute features of images with a frozen torchvision backbone, for compare --data",
    examples="""examples:
  python -m simulations features --backbone resnet18 --images cifar10 --weights DEFAULT --out features.npz
      cifar10/train/CLASS/*.png and cifar10/test/CLASS/*.png; torchvision downloads its weights
  python -m simulations features --backbone resnet18 --images train --test-images val --weights resnet18.pth \\
      --transform weights --out features.npz
      two folders, weights from a file, the preprocessing that these weights were trained with
  python -m simulations compare --data features.npz
      what the features are for

A run that was stopped goes on from FILE.parts when it is started again.

""",
    options=FeaturesOptions,
    run=run,
    fine="the file is written",
)
